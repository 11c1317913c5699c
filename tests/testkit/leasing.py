"""A scripted cluster whose brokers lease their messages to pops, and records for pops.

    async with LeasingCluster({"T": 10}) as cluster:
        ...
        cluster.expire()            # every open lease ends: its messages are in the retry topic
        assert cluster.acked("T") == [0, 1, 2]

Each broker has so many messages of each topic in one queue; a body is `<broker>/<number>`.  A receipt counts once, and
only the newest one of a message.  Nothing is held: a pop or a notification that finds nothing is answered at once.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gantry.client.popped import Receipt
from gantry.leaves import frames, records
from gantry.leaves.frames import Command
from gantry.pop.handle import NORMAL, RETRY_V1
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.scripted import ScriptedCluster, refuse

POP, ACK, ACKS, CHANGE, NEWS = (
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
)
KEEP, END, DEAD = RequestCode.KEEP_POP_OWNERS, RequestCode.END_POP_OWNER, RequestCode.FORWARD_TO_DLQ
_Place = tuple[int, int]  # flag and queue offset


def stored(
    queue_offset: int,
    *,
    queue_id: int = 0,
    topic: str = "T",
    body: bytes | None = None,
    properties: bytes = b"",
    reconsume_times: int = 0,
) -> bytes:
    """The bytes of one stored message; its body is its offset unless it is given."""
    text = b"%d" % queue_offset if body is None else body
    send = frames.Send(
        topic=topic, body=text, born_host=bytes(8), group="p", queue_id=queue_id, properties=properties,
        reconsume_times=reconsume_times,
    )  # fmt: skip
    send.queue_offset = queue_offset
    out = bytearray(records.size_of(send))
    records.encode_run(out, 0, 1000 * queue_offset, [send], 1, bytes(8))
    return bytes(out)


@dataclass
class Leased:
    """One topic on one broker: what was never popped, what waits to be delivered again, and the open leases."""

    count: int
    next: int = 0
    retries: list[tuple[int, int]] = field(default_factory=list)  # number of the message, attempts; by retry offset
    retry_next: int = 0
    open: dict[_Place, int] = field(default_factory=dict)  # the pop time of each leased message
    acked: list[int] = field(default_factory=list)  # numbers of messages
    dead: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return self.next >= self.count and self.retry_next >= len(self.retries)

    def number(self, place: _Place) -> int:
        """Which message it is."""
        return place[1] if place[0] == NORMAL else self.retries[place[1]][0]

    def attempts(self, place: _Place) -> int:
        return 0 if place[0] == NORMAL else self.retries[place[1]][1]


class LeasingCluster(ScriptedCluster):
    """Brokers that have `counts` messages of each topic, with `tags` if they are given."""

    def __init__(self, counts: Mapping[str, int], groups: int = 1, tags: tuple[str, ...] = ("",)) -> None:
        super().__init__(groups, queues=1)
        self.topics = {(name, topic): Leased(count) for name in self.names for topic, count in counts.items()}
        self.now_ms = 1_000_000
        self._tags = tags
        for name in self.names:
            self.answers[name, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
            for code, method in ((POP, self._pop), (ACK, self._ack), (ACKS, self._acks), (CHANGE, self._change)):
                self.answers[name, code] = lambda command, name=name, method=method: method(name, command)  # type: ignore[misc]
            self.answers[name, DEAD] = lambda command, name=name: self._bury(name, command)  # type: ignore[misc]
            self.answers[name, NEWS] = lambda command, name=name: reply(  # type: ignore[misc]
                command, ext={"hasMsg": str(not self.topics[name, command.ext["topic"]].is_empty).lower()}
            )

    def acked(self, topic: str = "T", name: str = "broker-a") -> list[int]:
        """The numbers of the messages whose receipt was acknowledged, in order."""
        return sorted(self.topics[name, topic].acked)

    def left(self, topic: str = "T", name: str = "broker-a") -> list[int]:
        """The numbers of the messages that are leased now."""
        one = self.topics[name, topic]
        return sorted(one.number(place) for place in one.open)

    def expire(self) -> None:
        """All leases end."""
        for one in self.topics.values():
            for place in list(one.open):
                one.retries.append((one.number(place), one.attempts(place) + 1))
            one.open.clear()

    def changes(self) -> list[int]:
        """The invisible times of all changes, in ms and in order."""
        return [int(command.ext["invisibleTime"]) for _, command in self.received if command.code == CHANGE]

    def _pop(self, name: str, command: Command) -> Command:
        one, ext = self.topics[name, command.ext["topic"]], command.ext
        self.now_ms += 1
        lease = {"popTime": str(self.now_ms), "invisibleTime": ext["invisibleTime"], "reviveQid": "0", "restNum": "0"}
        count = int(ext["maxMsgNums"])
        normal = list(range(one.next, min(one.count, one.next + count)))
        retried = list(range(one.retry_next, min(len(one.retries), one.retry_next + count - len(normal))))
        one.next += len(normal)
        one.retry_next += len(retried)
        if not normal and not retried:
            return reply(command, ResponseCode.POLLING_TIMEOUT, ext=lease)
        body = b""
        for place in [*((NORMAL, offset) for offset in normal), *((RETRY_V1, offset) for offset in retried)]:
            one.open[place] = self.now_ms
            body += self._record(name, ext, place, one, (normal if place[0] == NORMAL else retried)[0])
        parts = [(flag, offsets) for flag, offsets in ((NORMAL, normal), (RETRY_V1, retried)) if offsets]
        lease["startOffsetInfo"] = ";".join(f"{flag} 0 {offsets[0]}" for flag, offsets in parts)
        lease["msgOffsetInfo"] = ";".join(f"{flag} 0 {','.join(map(str, offsets))}" for flag, offsets in parts)
        return reply(command, ext=lease, body=body)

    def _record(self, name: str, ext: dict[str, str], place: _Place, one: Leased, start: int) -> bytes:
        number = one.number(place)
        tag = self._tags[number % len(self._tags)]
        properties = f"UNIQ_KEY\x01{name}/{ext['topic']}/{number}\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
        if place[0] != NORMAL:
            receipt = Receipt(start, self.now_ms, int(ext["invisibleTime"]), 0, place[0], name, 0, place[1])
            properties += f"POP_CK\x01{receipt}\x02"
        body = f"{name}/{number}".encode()
        return stored(
            place[1], topic=ext["topic"], body=body, properties=properties.encode(), reconsume_times=one.attempts(place)
        )

    def _ack(self, name: str, command: Command) -> Command:
        receipt = Receipt.parse(command.ext["extraInfo"])
        self._close(self._topic_of(name, command), (receipt.flag, receipt.offset), receipt.pop_ms)
        return reply(command)

    def _acks(self, name: str, command: Command) -> Command:
        for entry in json.loads(command.body)["acks"]:
            bits = int.from_bytes(base64.b64decode(entry["b"]), "little")
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    self._close(self.topics[name, entry["t"]], (int(entry["r"]), entry["so"] + bit), entry["pt"])
        return reply(command)

    def _change(self, name: str, command: Command) -> Command:
        receipt, one = Receipt.parse(command.ext["extraInfo"]), self._topic_of(name, command)
        self.now_ms += 1
        if one.open.get((receipt.flag, receipt.offset)) == receipt.pop_ms:
            one.open[receipt.flag, receipt.offset] = self.now_ms
        invisible = command.ext["invisibleTime"]
        return reply(command, ext={"popTime": str(self.now_ms), "invisibleTime": invisible, "reviveQid": "0"})

    def _bury(self, name: str, command: Command) -> Command:
        receipt, one = Receipt.parse(command.ext["extraInfo"]), self._topic_of(name, command)
        if one.open.pop((receipt.flag, receipt.offset), None) is not None:
            one.dead.append(one.number((receipt.flag, receipt.offset)))
        return reply(command)

    def _topic_of(self, name: str, command: Command) -> Leased:
        return self.topics[name, command.ext["topic"].rpartition("_")[2]]

    def _close(self, one: Leased, place: _Place, pop_ms: int) -> None:
        if one.open.get(place) == pop_ms:
            del one.open[place]
            one.acked.append(one.number(place))


def by_broker(bodies: list[bytes]) -> dict[str, list[int]]:
    """The numbers of messages by the broker that had them."""
    found: dict[str, list[int]] = defaultdict(list)
    for body in bodies:
        name, _, number = body.decode().partition("/")
        found[name].append(int(number))
    return dict(found)
