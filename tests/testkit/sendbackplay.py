"""Sending back without sockets: messages of a topic T, the handler of request 36, retry and dead-letter topics.

    play = SendBackPlay()
    record = play.message(b"sour")
    play.send_back(record)         # the code of the answer, -1 while there is none
    play.records("%RETRY%g")

Delays take no time: a message that is to wait stands in its retry topic at once, and `levels` says what was asked for.
With Flush.SYNC nothing is confirmed before `flush`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.append.admit import Admission, MessageLimits, WriteGate
from gantry.consume.sendback import SendBack
from gantry.errors import Refusal
from gantry.leaves import frames, properties, records
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.store.background import InlineBackground
from gantry.store.disk import RealDisk
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.wire.codes import RequestCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
GROUP = "g"
RETRY, DLQ = "%RETRY%g", "%DLQ%g"


class SendBackPlay:
    """One broker's redelivery, one life after the other; with a folder on the real disk."""

    def __init__(
        self, flush: Flush = Flush.ASYNC, group: GroupConfig | None = None, folder: str = "", **settings: int
    ) -> None:
        self.clock = SimClock()
        self.disk = SimDisk()
        sizes = {"segment_bytes": 1 << 20, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 5000}
        self.settings = StoreSettings(
            folder or "/store",
            **sizes | settings,
            flush=flush,
            store_host=HOST,
            delete_hours=frozenset(),
            disk_used_max=2.0,
            disk_used_clean=2.0,
            disk_used_refuse=2.0,
        )
        self.group = group or GroupConfig(GROUP)
        self.levels: list[int] = []
        self.opaque = 0  # of the last request
        self.refuses_delay: Refusal | None = None
        self._opaques = iter(range(1, 1 << 30))
        self.open()

    def open(self) -> None:
        """A new life on the disk."""
        self.disk.now_ms = self.clock.now_ms
        self.background = InlineBackground(at_once=self.settings.flush is Flush.ASYNC)
        disk = self.disk if self.settings.root == "/store" else RealDisk()
        self.store = open_store(self.settings, disk, self.clock, self.background)
        self.store.confirm_locally()
        self.topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        self.topics.put(TopicConfig("T", read_queues=4, write_queues=4))
        self.topics.adopt(self.store.queues())
        self.groups = Groups(MemoryState(), self.clock, GroupSettings())
        self.groups.put(self.group)
        self.gate = WriteGate()
        self.admission = Admission(self.topics, self.groups, self.gate, MessageLimits(100_000, 30_000), "b")
        self.acks = Acks(self.store.confirmed, self.clock, AckLimits(5.0, 1 << 20), flush_is_late, None)
        self.handler = SendBack(self.store, self.acks, self.admission, self.topics, self.groups, self)
        self.connection: Any = FakeConnection()

    def crash(self, rng: random.Random | None = None) -> None:
        """The power goes; any subset of what was not synced survives, or nothing of it without `rng`."""
        self.disk = self.disk.crash(rng) if rng is not None else self.disk.crash()
        self.open()

    def flush(self) -> None:
        """What waits for the disk gets it."""
        while self.background.step():
            pass

    def message(self, body: bytes = b"sour", topic: str = "T", queue_id: int = 0, **pairs: str) -> records.Record:
        """One that was delivered, as it stands in the log."""
        fields: dict[str, Any] = {}
        for name in ("sys_flag", "reconsume_times", "prepared_offset", "flag"):
            if name in pairs:
                fields[name] = int(pairs.pop(name))
        text = properties.pack({"UNIQ_KEY": f"K{next(self._opaques)}", "TAGS": "a"} | pairs)
        traits, unique_key, keys, tags_code = properties.scan(text)
        send = frames.Send(
            topic=topic,
            queue_id=queue_id,
            body=body,
            born_ms=self.clock.now_ms(),
            born_host=HOST,
            properties=text,
            traits=traits,
            unique_key=unique_key,
            keys=keys,
            tags_code=tags_code,
            **fields,
        )
        self.store.append([send])
        self.flush()
        record = self.store.reader.record_at(send.log_offset)
        assert record is not None
        return record

    def ask(self, version: int = 479, is_oneway: bool = False, **ext: str | int) -> frames.Command | None:
        """Request 36 as it is; the answer if there is one already."""
        self.opaque = next(self._opaques)
        command = frames.Command(RequestCode.CONSUMER_SEND_MSG_BACK, opaque=self.opaque, version=version)
        command.ext = {name: str(value) for name, value in ext.items()}
        if is_oneway:
            command.flag |= frames.FLAG_ONEWAY
        answer = self.handler.send_back(self.connection, command)
        if answer is not None:
            return answer
        return next((reply for reply in self.connection.take() if reply.opaque == command.opaque), None)

    def run(self, *asked: dict[str, str | int], connections: list[Any] | None = None) -> list[frames.Command]:
        """Requests 36 of one turn, on these connections by turns; those that the run leaves."""
        peers = connections or [self.connection]
        run = []
        for number, ext in enumerate(asked):
            command = frames.Command(RequestCode.CONSUMER_SEND_MSG_BACK, opaque=next(self._opaques))
            command.ext = {name: str(value) for name, value in ({"group": GROUP, "delayLevel": 0} | ext).items()}
            run.append((peers[number % len(peers)], command))
        return [command for _, command in self.handler.runs.take(run)]

    def send_back(self, record: records.Record, level: int = 0, **ext: str | int) -> int:
        """Request 36 for this message; the code of the answer, -1 while there is none."""
        fields: dict[str, str | int] = {"offset": record.log_offset, "group": GROUP, "delayLevel": level}
        answer = self.ask(**fields | ext)  # type: ignore[arg-type]
        return -1 if answer is None else answer.code

    def records(self, topic: str) -> list[records.Record]:
        """What stands in a topic, queue by queue."""
        return [record for queue in sorted(self.store.queues()) if queue[0] == topic for record in self._of(*queue)]

    def _of(self, topic: str, queue_id: int) -> Iterator[records.Record]:
        low, high = self.store.queue_range(topic, queue_id) or (0, 0)
        for offset in range(low, high):
            entry = self.store.reader.entry(topic, queue_id, offset)
            record = None if entry is None else self.store.reader.record_at(entry[0])
            assert record is not None
            yield record

    # What the handler takes for the intake of delayed messages

    def take(self, send: frames.Send) -> Refusal | None:
        """Note the level that a message asks for."""
        if self.refuses_delay is None:
            self.levels.append(int(properties.parse(send.properties)["DELAY"]))
        return self.refuses_delay

    def hide(self, sends: Iterable[frames.Send]) -> int:
        """Note the levels that these messages ask for."""
        return 0 if self.refuses_delay is not None else sum(self.take(send) is None for send in sends)


def said(record: records.Record) -> dict[str, str]:
    """A record's properties."""
    return properties.parse(record.properties)
