"""Delayed messages without sockets: the real way from a send to its delivery, on a simulated disk, life after life.

    play = DelayPlay()
    play.send(b"later", DELAY="1")
    play.pass_ms(1000)
    play.visible()           # what consumers can get
    play.crash(rng)          # the disk after a power cut, and a new life on it

Time passes in steps of ten milliseconds, as the job that delivers has it.  The document stands on the simulated disk
like everything else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.append.admit import Admission, MessageLimits, WriteGate
from gantry.append.batch import Appender, MessageStamp
from gantry.append.writing import GATE_DISK_FULL
from gantry.clock import SteadyClock
from gantry.leaves import frames, properties, records
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model import names
from gantry.produce.send import SendHandler
from gantry.schedule import wheel
from gantry.schedule.handlers import DelayHandlers
from gantry.schedule.intake import DelayIntake, waiting
from gantry.schedule.rules import DelayRules
from gantry.schedule.service import DelayService
from gantry.store import filenames
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.store.statefile import JsonState
from gantry.transaction.intake import HalfIntake
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
TOPIC = "orders"
STEP_MS = 10


class Sent(NamedTuple):
    """What the reply to a send says."""

    code: int
    key: str
    handle: str
    remark: str


class DelayPlay:
    """One broker's delays, one life after the other."""

    def __init__(self, flush: Flush = Flush.ASYNC, rules: DelayRules | None = None, **settings: int) -> None:
        self.clock = SimClock()
        self.disk = SimDisk()
        self.rules = rules or DelayRules()
        sizes = {"segment_bytes": 1 << 20, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 5000}
        self.settings = StoreSettings(
            "/store",
            **sizes | settings,
            flush=flush,
            store_host=HOST,
            delay_levels_ms=self.rules.levels_ms,
            delete_hours=frozenset(),
            disk_used_max=2.0,
            disk_used_clean=2.0,
            disk_used_refuse=2.0,
        )
        self.topic_state, self.group_state = MemoryState(), MemoryState()
        self.said: list[str] = []
        self._opaques = iter(range(1, 1 << 30))
        self.open()

    def open(self) -> None:
        """A new life on the disk."""
        self.disk.now_ms = self.clock.now_ms
        self.background = InlineBackground(at_once=self.settings.flush is Flush.ASYNC)
        self.steady = SteadyClock(self.clock)
        self.store = open_store(self.settings, self.disk, self.steady, self.background)
        self.steady.reach(self.store.latest_ms)
        self.store.confirm_locally()
        self.topics = Topics(self.topic_state, self.clock, TopicSettings("b", "c"))
        self.topics.adopt(self.store.queues())
        self.topics.on_delete(lambda topic: self.store.delete_queues(topic.name))
        groups = Groups(self.group_state, self.clock, GroupSettings())
        self.gate = WriteGate()
        marks = MessageStamp("c", "r", HOST)
        admission = Admission(self.topics, groups, self.gate, MessageLimits(100_000, marks.properties_bytes_max), "b")
        self.topics.on_change(admission.topic_changed)
        self.acks = Acks(self.store.confirmed, self.clock, AckLimits(5.0, 1 << 24), flush_is_late, None)
        appender = Appender(self.store, self.acks, self.gate, marks, lambda: f"made{next(self._opaques)}")
        path = filenames.config("/store", "delayOffset.json")
        self.state = JsonState(path, self.disk, self.background.housekeeper, lambda path, error: None)
        self.service = DelayService(
            self.store, self.state, self.topics, self.gate, self.steady, self.rules, self._say
        )
        intake = DelayIntake(
            self.steady, self.rules, lambda: waiting(self.store, self.service.book), "b", self.topics.is_http_queue
        )
        self.sending = SendHandler(admission, appender, 100, HalfIntake(lambda: 0, 0, lambda group: None), intake)
        self.handlers = DelayHandlers(self.service, self.store, self.acks, self.topics, self.steady, "b")
        self.connection = FakeConnection()
        for _ in self.service.recover(wheel.load(self.disk, "/store")):
            pass

    def _say(self, cause: str, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        """Stop in order."""
        self.flush()
        self.store.close()
        self.service.save_now()
        self.background.close()

    def reopen(self) -> None:
        """An orderly restart."""
        self.close()
        self.open()

    def crash(self, rng: random.Random | None = None) -> None:
        """The power goes; any subset of what was not synced survives, or nothing of it without `rng`."""
        self.disk = self.disk.crash(rng) if rng is not None else self.disk.crash()
        self.open()

    def kill(self) -> None:
        """The process goes, and the page cache stays."""
        assert self.store._parts.lock is not None
        self.store._parts.lock.release()
        self.open()

    def flush(self) -> None:
        """What waits for the disk gets it."""
        while self.background.step():
            pass

    def send(self, body: bytes = b"later", topic: str = TOPIC, queue_id: int = 0, **pairs: str) -> Sent:
        """Send one; under SYNC_FLUSH the code is -1 until it is flushed."""
        opaque = next(self._opaques)
        key = pairs.get("UNIQ_KEY", f"K{opaque}")
        text = properties.pack({"UNIQ_KEY": key} | pairs)
        traits, unique_key, keys, tags_code = properties.scan(text)
        send = frames.Send(
            code=310,
            version=479,
            opaque=opaque,
            rpc_flag=0,
            topic=topic,
            default_topic=names.TEMPLATE_TOPIC,
            queue_id=queue_id,
            born_ms=self.clock.now_ms(),
            properties=text,
            body=body,
            traits=traits,
            unique_key=unique_key,
            keys=keys,
            tags_code=tags_code,
        )
        self.sending.send_run(self.connection, [send])  # type: ignore[arg-type]
        self.sending.append_gathered()
        for reply in self.connection.take():
            if reply.opaque == opaque:
                return Sent(reply.code, key, reply.ext.get("recallHandle", ""), reply.remark or "")
        return Sent(-1, key, "", "")

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, with a look for what is due every ten milliseconds and the second's work every second."""
        for number in range(milliseconds // STEP_MS):
            self.clock.advance(STEP_MS)
            self.deliver()
            if number % 100 == 99:
                self.tick()
        self.clock.advance(milliseconds % STEP_MS)

    def deliver(self) -> None:
        """What is due now."""
        for _ in self.service.deliver() or ():
            pass
        self.gate.reopen(GATE_DISK_FULL)

    def tick(self) -> None:
        """What is due every second, of the store too."""
        for _ in self.service.tick():
            pass
        self.steady.look()
        self.store.tick(self.clock.now_ms())

    def carry_on(self) -> None:
        """Everything that is in the log is about to be removed: what is pending is copied behind it."""
        retention, wanted = self.store.retention, self.store.retention._wanted
        retention._wanted = self.store.written.offset
        for _ in self.service._carrying.go_on():
            pass
        retention._wanted = wanted

    def command(self, code: int, **ext: str | int) -> frames.Command:
        """A request."""
        return frames.Command(code, opaque=next(self._opaques), ext={name: str(one) for name, one in ext.items()})

    def ask(self, code: int, **ext: str | int) -> frames.Command:
        """A request that answers at once or after a flush."""
        command = self.command(code, **ext)
        on = self.handlers
        handler = {370: on.recall, 24044: on.retime, 24012: on.cancel, 45: on.offsets}[code]
        answer = handler(self.connection, command)  # type: ignore[arg-type]
        self.flush()
        if answer is not None:
            return answer
        (found,) = [reply for reply in self.connection.take() if reply.opaque == command.opaque]
        return found

    def visible(self, topic: str = TOPIC) -> list[bytes]:
        """The bodies of everything that consumers of a topic can get, queue by queue."""
        return [record.body for record in self.records(topic)]

    def records(self, topic: str = TOPIC) -> Iterator[records.Record]:
        """The dispatched records of a topic's queues."""
        for name, queue_id in sorted(self.store.queues()):
            if name != topic:
                continue
            low, high = self.store.queue_range(topic, queue_id) or (0, 0)
            for offset in range(low, high):
                entry = self.store.reader.entry(topic, queue_id, offset)
                record = None if entry is None else self.store.reader.record_at(entry[0])
                assert record is not None
                yield record
