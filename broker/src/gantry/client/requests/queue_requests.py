"""Requests for HTTP queues, most of them GantryMQ's own.

    RETIME_DELAYED (24044)    a delayed message becomes due so long from now; the answer has a new recall handle
    PEEK_MESSAGE (200052)     RocketMQ's, in the order of priorities
    QUEUE_STATS (24045)       how many messages of a queue are active, leased, delayed
    BATCH_ACK_MESSAGE         the answer of our brokers names the entries that were not valid any more
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantry.client.popped import Receipt
from gantry.client.requests.pop_requests import ack
from gantry.client.requests.question import Question, document, require
from gantry.errors import RemoteProtocolError
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.wire import record
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request

ACKS_MAX = 1024  # entries of one request; brokers refuse more
_NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT)
_VERDICT, _STALE = "gantryVerdict", "stale"


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Messages of a queue on one broker, or on several: visible, leased, and delayed."""

    active: int = 0
    inactive: int = 0
    delayed: int = 0

    def __add__(self, other: QueueStats) -> QueueStats:
        return QueueStats(
            self.active + other.active, self.inactive + other.inactive, self.delayed + other.delayed
        )


def retime(topic: str, recall_handle: str, delay_ms: int) -> Question[str]:
    """Have a delayed message delivered so long from now; the answer is its new handle, empty when it is delivered.

    RefusedError 604 when it was delivered, cancelled or re-timed before: the first of them counts.
    """

    def read(reply: Command) -> str:
        return require(reply).ext.get("recallHandle", "")

    ext = {"topic": topic, "recallHandle": recall_handle, "delayMs": str(delay_ms)}
    return Question(request(RequestCode.RETIME_DELAYED, ext), read)


def stats(topic: str, group: str) -> Question[QueueStats]:
    """Ask one broker how many messages of a queue it has."""

    def read(reply: Command) -> QueueStats:
        found = document(require(reply))
        values = [found.get(name) for name in ("active", "inactive", "delayed")]
        numbers = [one for one in values if isinstance(one, int) and not isinstance(one, bool)]
        if len(numbers) < len(values):
            raise RemoteProtocolError(f"statistics of {topic}: {str(found)[:100]}, expected three numbers")
        return QueueStats(*numbers)

    return Question(request(RequestCode.QUEUE_STATS, {"topic": topic, "consumerGroup": group}), read)


def peek(group: str, queue: MessageQueue, count_max: int) -> Question[list[StoredMessage]]:
    """Ask one broker for messages that a pop by priority would get, without taking them."""

    def read(reply: Command) -> list[StoredMessage]:
        if require(reply, *_NOTHING).code in _NOTHING:
            return []
        return record.pulled(reply.body, queue.broker_name, queue.topic)

    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "maxMsgNums": str(count_max),
        "gantryOrder": "priority",
        "bname": queue.broker_name,
    }
    return Question(request(RequestCode.PEEK_MESSAGE, ext), read)


def ack_each(group: str, topic: str, receipts: Sequence[Receipt]) -> Question[list[bool]]:
    """Acknowledge messages of one broker; the answer says of each whether its lease was still open.

    Messages of one lease are one entry, a bit each.  Of two equal receipts the second one comes too late.
    """
    entries: dict[tuple[int, int, int, int, int, int], tuple[int, dict[int, int]]] = {}
    found = [False] * len(receipts)
    for index, one in enumerate(receipts):
        lease = one.flag, one.start, one.queue_id, one.revive_queue, one.pop_ms, one.invisible_ms
        _, offsets = entries.setdefault(lease, (len(entries), {}))
        if offsets.setdefault(one.offset, index) == index:
            found[index] = True
    acks = [
        {
            "c": group, "t": topic, "r": str(flag), "so": start, "q": queue_id, "rq": revive, "pt": pop_ms,
            "it": invisible_ms, "b": _bits(offset - start for offset in offsets),
        }
        for (flag, start, queue_id, revive, pop_ms, invisible_ms), (_, offsets) in entries.items()
    ]  # fmt: skip
    of_entry = [offsets for _, offsets in entries.values()]

    def read(reply: Command) -> list[bool]:
        if not require(reply).body:
            return found
        stale = document(reply).get("stale")
        for place in stale if isinstance(stale, list) else ():
            match place:
                case [int(entry), int(offset)] if 0 <= entry < len(of_entry) and offset in of_entry[entry]:
                    found[of_entry[entry][offset]] = False
        return found

    body = dumps({"brokerName": receipts[0].broker, "acks": acks})
    return Question(request(RequestCode.BATCH_ACK_MESSAGE, {"bname": receipts[0].broker}, body), read)


def ack_again(group: str, topic: str, receipt: Receipt) -> Question[bool]:
    """Acknowledge one message whose first acknowledgement had no answer; False when it was leased again meanwhile.

    That it was acknowledged already is True: by us, as far as anybody knows.
    """

    def read(reply: Command) -> bool:
        return require(reply).ext.get(_VERDICT) != _STALE

    return Question(ack(group, topic, receipt).command, read)


def _bits(places: Iterable[int]) -> str:
    value = 0
    for place in places:
        value |= 1 << max(0, place)
    return base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()
