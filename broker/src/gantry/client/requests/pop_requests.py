"""Requests of POP consumption and how their answers read (facts: protocol, section 9).

    POP_MESSAGE (200050)                  messages, invisible for others until the invisible time is over
    ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151)
    CHANGE_MESSAGE_INVISIBLETIME (200053) the message becomes visible so long from now; the answer has a new receipt
    NOTIFICATION (200054)                 waits until there are messages, without taking any

GantryMQ's own, which RocketMQ's brokers refuse as not supported (3):

    FORWARD_TO_DLQ (24043)                the message becomes a dead letter and is acknowledged, in one step
    KEEP_POP_OWNERS (24041)               this client lives: the leases that name it as owner are renewed by the broker
    END_POP_OWNER (24042)                 it ends: its leases become visible after a second

A pop's answer says for each queue where its lease begins and which offsets it has, in texts beside the records; the
receipts are made from them.  The topic of the requests about a message is the one that it stands in.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from gantry.client.popped import PoppedMessage, Receipt
from gantry.client.requests import admin_requests
from gantry.client.requests.question import Question, nothing, number, require
from gantry.errors import RemoteProtocolError
from gantry.leaves import fields
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.pop.handle import NORMAL, RETRY_V1, RETRY_V2
from gantry.wire import record
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request

ANY_QUEUE = -1  # as the queue of a pop: all queues of the broker
POP_COUNT_MAX = 32  # brokers refuse more
GIVEN_BACK_MS = 1000  # RocketMQ's proxy uses the same for the messages of a client that is gone
_ACK_BITS_MAX = 4096  # offsets that one entry of a batch of acknowledgements spans

_CK, _FIRST_POP_MS = "POP_CK", "1ST_POP_TIME"
_Place = tuple[int, int]  # flag and queue id: each occurs once in an answer


class PopStatus(Enum):
    """How a pop ended."""

    FOUND = "messages"
    EMPTY = "nothing until the time was up"
    TOO_MANY = "the broker holds too many pops; try again in a moment"


_STATUS = {
    ResponseCode.SUCCESS: PopStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PopStatus.EMPTY,
    ResponseCode.POLLING_TIMEOUT: PopStatus.EMPTY,
    ResponseCode.POLLING_FULL: PopStatus.TOO_MANY,
}

_NOT_ORDERLY = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class PopSettings:
    """The parts of a pop that are equal for every pop of a topic."""

    group: str
    subscription: Subscription
    count_max: int = POP_COUNT_MAX
    invisible_ms: int = 60_000
    wait_s: float = 15.0  # how long the broker may hold the pop while there is nothing; 0: not at all
    from_first: bool = False  # where a group begins that never popped: at the oldest message, else at the newest
    is_orderly: bool = False
    owner: str = ""  # the client whose KEEP_POP_OWNERS renews the leases; empty: nobody does
    by_priority: bool = False  # queue by queue in ascending number, redeliveries of each first; only GantryMQ's brokers


@dataclass(frozen=True, slots=True)
class PopResult:
    """The answer to one pop."""

    status: PopStatus
    messages: tuple[PoppedMessage, ...] = ()
    unread: tuple[Receipt, ...] = ()  # popped, but left out here: their bodies would have filled the memory
    rest: int = 0  # how many messages are left, as the broker estimates


def check_receive(count_max: int, invisible_s: float, wait_s: float) -> None:
    """Raise ValueError when no broker would accept a pop with these values."""
    if not 0 < count_max <= POP_COUNT_MAX or not invisible_s > 0 or wait_s < 0:
        text = f"max_messages {count_max}, invisible_s {invisible_s}, wait_s {wait_s}"
        raise ValueError(f"{text}: expected 1 to {POP_COUNT_MAX} messages, above 0 s invisible, no negative wait")


def pop(
    queue: MessageQueue, settings: PopSettings, attempt_id: str = "", pop_name: str = ""
) -> Question[PopResult]:
    """Take messages of a queue, or with ANY_QUEUE of all queues of its broker, out of the group's sight for a time.

    attempt_id: an orderly pop that is repeated with the same id gets the same messages again.  pop_name: what the owner
    calls this pop, see `end_pops`.
    """

    def read(reply: Command) -> PopResult:
        status = _STATUS[ResponseCode(require(reply, *_STATUS).code)]
        if status is not PopStatus.FOUND:
            return PopResult(status)
        found = record.pulled(reply.body, queue.broker_name, queue.topic)
        messages, unread = _Leases(reply, queue, settings.is_orderly).receipts(found)
        rest = number(reply, "restNum") if "restNum" in reply.ext else 0
        return PopResult(PopStatus.FOUND if messages else PopStatus.EMPTY, messages, unread, rest)

    ext = {
        "consumerGroup": settings.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "maxMsgNums": str(settings.count_max),
        "invisibleTime": str(settings.invisible_ms),
        "pollTime": str(int(settings.wait_s * 1000)),
        "bornTime": "0",  # RocketMQ: the broker's own clock; it refuses the pops of a client whose clock is behind
        "initMode": "0" if settings.from_first else "1",
        "expType": settings.subscription.expression_type,
        "exp": settings.subscription.expression,
        "order": "true" if settings.is_orderly else "false",
        "bname": queue.broker_name,
    }
    if attempt_id:
        ext["attemptId"] = attempt_id
    if settings.owner:
        ext["gantryOwner"] = settings.owner
    if pop_name:
        ext["gantryPop"] = pop_name
    if settings.by_priority:
        ext["gantryOrder"] = "priority"
    return Question(request(RequestCode.POP_MESSAGE, ext), read)


def ack(group: str, topic: str, receipt: Receipt) -> Question[None]:
    """Acknowledge one message of a topic; RefusedError 17, 13, 208.  An expired receipt is no error to a broker."""
    return Question(request(RequestCode.ACK_MESSAGE, _of_message(group, topic, receipt)), nothing)


def ack_batch(group: str, topic: str, receipts: Sequence[Receipt]) -> Question[None]:
    """Acknowledge several messages of one topic and broker; they are not orderly, and `can_batch` each."""
    by_lease: dict[tuple[str, int, int, int, int, int], list[int]] = defaultdict(list)
    for one in receipts:
        lease = str(one.flag), one.start, one.queue_id, one.revive_queue, one.pop_ms, one.invisible_ms
        by_lease[lease].append(one.offset - one.start)
    acks = [
        {"c": group, "t": topic, "r": flag, "so": start, "q": queue_id, "rq": revive, "pt": pop_ms, "it": invisible_ms,
         "b": base64.b64encode(_bits(places)).decode()}
        for (flag, start, queue_id, revive, pop_ms, invisible_ms), places in by_lease.items()
    ]  # fmt: skip
    body = dumps({"brokerName": receipts[0].broker, "acks": acks})
    return Question(request(RequestCode.BATCH_ACK_MESSAGE, {"bname": receipts[0].broker}, body), nothing)


def ack_requests(group: str, topic: str, receipts: Sequence[Receipt]) -> list[tuple[list[int], Question[None]]]:
    """Return the requests that acknowledge messages of a topic, each with the indexes of its receipts.

    The receipts of one broker go together where a batch can hold them.
    """
    parts: dict[tuple[str, Receipt | None], list[int]] = defaultdict(list)
    for index, receipt in enumerate(receipts):
        parts[receipt.broker, None if can_batch(receipt) else receipt].append(index)
    return [
        (indexes, ack_batch(group, topic, [receipts[index] for index in indexes]))
        if len(indexes) > 1 and can_batch(receipts[indexes[0]])
        else (indexes, ack(group, topic, receipts[indexes[0]]))
        for indexes in parts.values()
    ]


def can_batch(receipt: Receipt) -> bool:
    """Return whether a batch of acknowledgements can hold this one: its place in the lease is a bit."""
    return not receipt.is_orderly and 0 <= receipt.offset - receipt.start < _ACK_BITS_MAX


def change(group: str, topic: str, receipt: Receipt, invisible_ms: int) -> Question[Receipt]:
    """Make a message visible so long from now, sooner or later than it would be; the answer is its new receipt."""

    def read(reply: Command) -> Receipt:
        require(reply)
        pop_ms = number(reply, "popTime")
        if not pop_ms:
            return receipt  # RocketMQ: an orderly message that is not in its queue's batch any more
        return receipt.changed(pop_ms, number(reply, "invisibleTime"), number(reply, "reviveQid"))

    ext = _of_message(group, topic, receipt) | {"invisibleTime": str(invisible_ms)}
    return Question(request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext), read)


def is_orderly(group: str) -> Question[bool]:
    """Ask a broker whether a group consumes in order; a broker before RocketMQ 5 and a new group do not."""
    question = admin_requests.group_config(group)

    def read(reply: Command) -> bool:
        return reply.code not in _NOT_ORDERLY and question.read(reply).consume_orderly

    return Question(question.command, read)


def forward_to_dlq(group: str, topic: str, receipt: Receipt) -> Question[None]:
    """Make a message a dead letter of the group, and acknowledge it; a repetition changes nothing."""
    return Question(request(RequestCode.FORWARD_TO_DLQ, _of_message(group, topic, receipt)), nothing)


def notification(queue: MessageQueue, settings: PopSettings, attempt_id: str = "") -> Question[bool]:
    """Wait until a pop of this queue would find messages; False when it would not, until the time was up."""

    def read(reply: Command) -> bool:
        return fields.boolean(require(reply).ext.get("hasMsg", ""))

    ext = {
        "consumerGroup": settings.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "pollTime": str(int(settings.wait_s * 1000)),
        "bornTime": "0",
        "order": "true" if settings.is_orderly else "false",
        "expType": settings.subscription.expression_type,
        "exp": settings.subscription.expression,
        "bname": queue.broker_name,
    }
    if attempt_id:
        ext["attemptId"] = attempt_id
    return Question(request(RequestCode.NOTIFICATION, ext), read)


def keep_owners(client_id: str, groups: Iterable[str]) -> Question[None]:
    """Tell a broker that a client lives and has leases in these groups; due every ten seconds."""
    body = dumps({"clientId": client_id, "groups": sorted(groups)})
    return Question(request(RequestCode.KEEP_POP_OWNERS, {}, body), nothing)


def end_owner(client_id: str, group: str) -> Question[None]:
    """Tell a broker that a client ends: what it has not acknowledged in this group becomes visible after a second."""
    return Question(request(RequestCode.END_POP_OWNER, {"clientId": client_id, "consumerGroup": group}), nothing)


def end_pops(names: Sequence[str]) -> Question[None]:
    """Tell a broker of pops whose answers did not come: what they took becomes visible after a second, although its
    owners live.
    """
    return Question(request(RequestCode.END_POP_OWNER, {"clientId": ""}, dumps({"pops": list(names)})), nothing)


class _Leases:
    """The texts of a pop's answer: the lease of each queue; RemoteProtocolError when one cannot be read."""

    def __init__(self, reply: Command, queue: MessageQueue, is_orderly: bool) -> None:
        ext = reply.ext
        self._topic, self._broker_name = queue.topic, queue.broker_name
        self._lease = number(reply, "popTime"), number(reply, "invisibleTime"), number(reply, "reviveQid")
        self._has_starts = bool(ext.get("startOffsetInfo"))
        self._starts = {place: start for place, (start,) in _entries(ext.get("startOffsetInfo", ""))}
        self._offsets = dict(_entries(ext.get("msgOffsetInfo", "")))
        self._counts = _order_counts(ext.get("orderCountInfo", "")) if is_orderly else {}

    def receipts(self, found: Iterable[StoredMessage]) -> tuple[tuple[PoppedMessage, ...], tuple[Receipt, ...]]:
        """Return the messages with their receipts, and the receipts of offsets that no message came for."""
        ranks: dict[_Place, int] = defaultdict(int)
        messages: list[PoppedMessage] = []
        seen: set[tuple[int, int, int]] = set()
        for stored in found:
            receipt = self._own_receipt(stored) or self._receipt(stored, ranks)
            if receipt is not None:
                seen.add((receipt.flag, receipt.queue_id, receipt.offset))
                stored = self._completed(stored, receipt)
            messages.append(PoppedMessage(stored, receipt, self._topic))
        unread = [
            self._made((flag, queue_id), offset)
            for (flag, queue_id), offsets in self._offsets.items()
            for offset in offsets
            if (flag, queue_id, offset) not in seen
        ]
        # A damaged record has lost its receipt, and must not be acknowledged as another one.
        return tuple(messages), () if any(one.receipt is None for one in messages) else tuple(unread)

    def _own_receipt(self, stored: StoredMessage) -> Receipt | None:
        """Return the receipt that the broker put into a message of a retry topic; None when there is none.

        A producer may have set the property, so it counts only if it can be the broker's.
        """
        text = stored.properties.get(_CK)
        if not text:
            return None  # nearly always
        try:
            receipt = Receipt.parse(text)
        except ValueError:
            return None
        told = receipt.pop_ms, receipt.broker, receipt.queue_id, receipt.offset
        meant = self._lease[0], self._broker_name, stored.queue_id, stored.queue_offset
        return receipt if receipt.flag != NORMAL and told == meant else None

    def _receipt(self, stored: StoredMessage, ranks: dict[_Place, int]) -> Receipt | None:
        place = _flag_of(stored.topic, self._topic), stored.queue_id
        if not self._has_starts:
            # RocketMQ: brokers before 4.9.3; each message is its own lease's start, or the first of its queue is.
            self._starts.setdefault(place, stored.queue_offset)
            return self._made(place, stored.queue_offset)
        offsets = self._offsets.get(place, ())
        rank, ranks[place] = ranks[place], ranks[place] + 1
        if stored.queue_offset in offsets:
            return self._made(place, stored.queue_offset)
        if stored.decode_error or rank >= len(offsets) or place not in self._starts:
            return None
        return self._made(place, sorted(offsets)[rank])

    def _made(self, place: _Place, offset: int) -> Receipt:
        flag, queue_id = place
        return Receipt(self._starts.get(place, offset), *self._lease, flag, self._broker_name, queue_id, offset)

    def _completed(self, stored: StoredMessage, receipt: Receipt) -> StoredMessage:
        """Return the message with the properties that RocketMQ's clients set, and the count of an orderly pop."""
        topic = stored.topic if receipt.flag == NORMAL else self._topic
        properties = {_FIRST_POP_MS: str(receipt.pop_ms), **stored.properties, _CK: str(receipt)}
        place = receipt.flag, receipt.queue_id
        count = self._counts.get((*place, receipt.offset)) or self._counts.get((*place, None)) or 0
        return replace(stored, topic=topic, properties=properties, reconsume_times=count or stored.reconsume_times)


def _entries(text: str) -> Iterable[tuple[_Place, tuple[int, ...]]]:
    """Read `<flag> <queue> <number>,<number>;...`; RemoteProtocolError for anything else, or a place that is twice."""
    seen: set[_Place] = set()
    for entry in text.split(";") if text else ():
        parts = entry.split(" ")
        numbers = [fields.integer(part) for part in (*parts[:2], *parts[-1].split(","))] if len(parts) == 3 else [None]
        known = tuple(one for one in numbers if one is not None)
        if len(known) != len(numbers) or known[0] > RETRY_V2 or known[:2] in seen:
            raise RemoteProtocolError(f"answer to a pop: {entry[:60]!r} is no entry `flag queue offsets`, or is twice")
        seen.add((known[0], known[1]))
        yield (known[0], known[1]), known[2:]


def _order_counts(text: str) -> dict[tuple[int, int, int | None], int]:
    """Read `<flag> qo<queue>%<offset> <count>` and, with no offset, `<flag> <queue> <count>`; others are ignored."""
    found: dict[tuple[int, int, int | None], int] = {}
    for entry in text.split(";") if text else ():
        parts = entry.split(" ")
        if len(parts) != 3:
            continue
        queue_text, _, offset_text = parts[1].removeprefix("qo").partition("%")
        flag, queue_id, count = fields.integer(parts[0]), fields.integer(queue_text), fields.integer(parts[2])
        offset = fields.integer(offset_text) if offset_text else None
        if flag is not None and queue_id is not None and count is not None:
            found[flag, queue_id, offset] = count
    return found


def _flag_of(topic: str, popped: str) -> int:
    """Return the flag of the topic that a record names: a broker may return retry topics under their own names."""
    if topic == popped or not is_retry_topic(topic):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def _of_message(group: str, topic: str, receipt: Receipt) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": receipt.topic_of(group, topic),
        "queueId": str(receipt.queue_id),
        "offset": str(receipt.offset),
        "extraInfo": str(receipt),
        "bname": receipt.broker,
    }


def _bits(places: Iterable[int]) -> bytes:
    """Return Java's BitSet as bytes: bit i is bit i % 8 of byte i // 8."""
    value = 0
    for place in places:
        value |= 1 << place
    return value.to_bytes((value.bit_length() + 7) // 8, "little")
