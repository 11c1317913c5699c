"""Transactions without sockets: the real way from a send to the check-back, on a simulated disk, life after life.

    play = TransactionPlay()
    half = play.half(b"paid")
    play.end(half, COMMIT)
    play.crash(rng)          # the disk after a power cut, and a new life on it

A turn of the loop is a call: what would run "soon" runs before a method returns.  The producers' answers come from
the test.  Saved consumer offsets live beside the disk and survive a crash as they were last saved.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.append.admit import Admission, MessageLimits, WriteGate
from gantry.append.batch import Appender, MessageStamp
from gantry.clock import SteadyClock
from gantry.leaves import frames, properties, records
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model import documents, names
from gantry.produce.send import SendHandler
from gantry.schedule.intake import DelayIntake
from gantry.schedule.rules import DelayRules
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.transaction.batch_handlers import Copies, batches_of
from gantry.transaction.batchends import SettleResult
from gantry.transaction.checker import Book, CheckPolicy
from gantry.transaction.ends import Ends
from gantry.transaction.handlers import TransactionHandlers
from gantry.transaction.intake import HalfIntake
from gantry.transaction.service import CheckContext, CheckService
from gantry.transaction.settle import Settling
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.scannedruns import hold_to_it
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
GROUP = "payers"
T = TypeVar("T")

TOPIC = "orders"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Half(NamedTuple):
    """What the reply to a half says."""

    code: int
    queue_offset: int
    log_offset: int
    key: str


class Question(NamedTuple):
    """A check that a producer got."""

    key: str
    checks: int
    half: Half
    record: records.Record


class TransactionPlay:
    """One broker's transactions, one life after the other."""

    def __init__(
        self, flush: Flush = Flush.ASYNC, rules: CheckPolicy | None = None, group: str = "b", **settings: int
    ) -> None:
        self.group = group
        self.clock = SimClock()
        self.disk = SimDisk()
        self.rules = rules or CheckPolicy()
        sizes = {"segment_bytes": 1 << 20, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 5000}
        self.settings = StoreSettings(
            "/store",
            **sizes | settings,
            flush=flush,
            store_host=HOST,
            delete_hours=frozenset(),
            disk_used_max=2.0,
            disk_used_clean=2.0,
            disk_used_refuse=2.0,
        )
        self.states = [MemoryState(), MemoryState(), MemoryState(), MemoryState()]
        self.is_kept = True  # whether the copies of the group take changes of metadata
        self.said: list[str] = []
        self.producers: list[FakeConnection] = []
        self.subscribed: dict[str, list[str]] = {}
        self._soon: list[Callable[[], None]] = []
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
        hold_to_it(self.store)
        topics, groups, offsets, _ = self.states
        self.topics = Topics(topics, self.clock, TopicSettings(self.group, "c"))
        self.groups = Groups(groups, self.clock, GroupSettings())
        self.offsets = Offsets(offsets, self.clock)
        self.topics.adopt(self.store.queues())
        self.gate = WriteGate()
        marks = MessageStamp("c", "r", HOST)
        limits = MessageLimits(100_000, marks.properties_bytes_max)
        admission = Admission(self.topics, self.groups, self.gate, limits, self.group)
        self.acks = Acks(self.store.confirmed, self.clock, AckLimits(5.0, 1 << 20), flush_is_late, None)
        appender = Appender(self.store, self.acks, self.gate, marks, lambda: "made")
        self.settling = Settling(
            self.store, Book(), self.acks, self.gate, self.topics, self.steady, self._soon.append
        )
        outside = CheckContext(
            lambda group: self.producers if group == GROUP else [],
            lambda group: self.subscribed.get(group, []),
            lambda cause, text: self.said.append(text),
            self.group,
        )
        copies = Copies(self.group, self._caught_up, lambda: lambda: True)
        state = self.states[3]
        self.batches = batches_of(self.settling, self.store, state, self.gate, self.steady, copies)
        self.service = CheckService(
            self.store, self.offsets, self.steady, self.settling, self.rules, outside, self.batches.decisions
        )
        self.delays = DelayIntake(self.steady, DelayRules(), lambda: 0, self.group)
        self.settling.redirect = self.delays.redirect
        intake = HalfIntake(lambda: len(self.book.open), 100_000, self.service.group_rule.note_plain)
        self.sending = SendHandler(admission, appender, 100, intake, self.delays)
        self.ends = Ends(self.settling, self.store)
        self.handlers = TransactionHandlers(self.service, self.store, self.steady)
        self.connection = FakeConnection()
        for _ in self.service.recover():
            pass

    @property
    def book(self) -> Book:
        """What is open."""
        return self.settling.book

    def close(self) -> None:
        """Stop in order."""
        self.flush()
        self.save()
        self.store.close()
        self.background.close()

    def reopen(self) -> None:
        """An orderly restart."""
        self.close()
        self.open()

    def crash(self, rng: random.Random | None = None) -> None:
        """The power goes; any subset of what was not synced survives, or nothing of it without `rng`."""
        self.disk = self.disk.crash(rng) if rng is not None else self.disk.crash()
        self.producers = []
        self._soon.clear()
        self.open()

    def retain(self) -> None:
        """What is old enough goes, at any hour; what is owed is carried on first."""
        self.store.retention.drop_expired()
        for _ in range(20):
            self.clock.advance(1100)
            for _ in self.store.tick(self.clock.now_ms()):
                pass
            self.tick()
            self.store._flush.finish()
            self.flush()

    def kill(self) -> None:
        """The process goes and its machine stays: the log is there as far as it was written."""
        self.disk = self.disk.restart()
        self.producers = []
        self._soon.clear()
        self.open()

    def save(self) -> None:
        """Positions and topics to their files."""
        for _ in range(3):
            self.tick()
            self.store._flush.finish()
            self.flush()
        self.topics.file.save_now()
        self.offsets.file.save_now()

    def flush(self) -> None:
        """What waits for the disk gets it."""
        self.turn()
        while self.background.step() or self._soon:
            self.turn()

    def turn(self) -> None:
        """What was to happen soon."""
        while self._soon:
            self._soon.pop(0)()

    def half(
        self, body: bytes = b"paid", key: str = "", topic: str = TOPIC, queue_id: int = 0, born_ms: int | None = None,
        **pairs: str,
    ) -> Half:
        """Send one; under SYNC_FLUSH the code is -1 until it is flushed."""
        opaque = next(self._opaques)
        key = key or f"K{opaque}"
        text = properties.pack({"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP} | pairs)
        traits, unique_key, keys, tags_code = properties.scan(text)
        send = frames.Send(
            code=310,
            version=479,
            opaque=opaque,
            rpc_flag=0,
            group=GROUP,
            topic=topic,
            default_topic=names.TEMPLATE_TOPIC,
            queue_id=queue_id,
            sys_flag=4,
            born_ms=self.clock.now_ms() if born_ms is None else born_ms,
            properties=text,
            body=body,
            traits=traits,
            unique_key=unique_key,
            keys=keys,
            tags_code=tags_code,
        )
        self.sending.send_run(self.connection, [send])  # type: ignore[arg-type]
        self.sending.append_gathered()
        code = next((reply.code for reply in self.connection.take() if reply.opaque == opaque), -1)
        return Half(code, send.queue_offset, send.log_offset, key)

    def end_later(self, half: Half, kind: int, group: str = GROUP, is_check: bool = False) -> int:
        """Ask for an end without letting the loop turn; its opaque number."""
        opaque = next(self._opaques)
        end = frames.End(
            opaque=opaque,
            group=group,
            queue_offset=half.queue_offset,
            log_offset=half.log_offset,
            kind=kind,
            from_check=is_check,
            transaction_id=half.key,
        )
        self.ends.end_run(self.connection, [end])  # type: ignore[arg-type]
        return opaque

    def end(self, half: Half, kind: int, group: str = GROUP, is_check: bool = False) -> int:
        """Ask for an end; the code of the answer, -1 while there is none."""
        opaque = self.end_later(half, kind, group, is_check)
        self.turn()
        return self.answers().get(opaque, -1)

    def answers(self) -> dict[int, int]:
        """Codes of the answers since the last look, by opaque number."""
        return {reply.opaque: reply.code for reply in self.connection.take()}

    def ask(self, code: int, **ext: str | int) -> frames.Command | None:
        """An administration request that answers at once or after a flush."""
        fields = {name: str(value) for name, value in ext.items()}
        command = frames.Command(code, opaque=next(self._opaques), ext=fields)
        handler = {
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.handlers.resume,
            RequestCode.SHOW_TRANSACTION: self.handlers.show,
            RequestCode.SETTLE_TRANSACTION: self.handlers.settle,
        }[RequestCode(code)]
        answer = asyncio.run(self._answered(handler(self.connection, command)))  # type: ignore[arg-type]
        if answer is not None:
            return answer
        self.turn()
        return next((reply for reply in self.connection.take() if reply.opaque == command.opaque), None)

    def decide(
        self, sink: str, batch: int, action: str, parts: list[str] | None = None, **more: str
    ) -> frames.Command:
        """DECIDE_BATCH of a sink that is at home here."""
        body = b"" if parts is None else bodies.dumps({"parts": parts})
        ext = {"sinkId": sink, "batchId": str(batch), "action": action, "home": "b"} | more
        return self.serve(frames.Command(RequestCode.DECIDE_BATCH, opaque=next(self._opaques), ext=ext, body=body))

    def serve(self, command: frames.Command) -> frames.Command:
        """A request of a sink's driver."""
        handler = {
            RequestCode.DECIDE_BATCH: self.batches.decide,
            RequestCode.END_BATCH: self.batches.end,
            RequestCode.LIST_SINKS: self.batches.page,
        }[RequestCode(command.code)]
        answer = handler(self.connection, command)  # type: ignore[operator]
        return answer if isinstance(answer, frames.Command) else asyncio.run(self._turned(answer))

    def end_batch(self, sink: str, batch: int, home: str = "b", **named: object) -> frames.Command:
        """END_BATCH, once."""
        ext = {"sinkId": sink, "batchId": str(batch), "home": home}
        body = bodies.dumps(named)
        return self.serve(frames.Command(RequestCode.END_BATCH, opaque=next(self._opaques), ext=ext, body=body))

    def listed(self, sink: str) -> list[object]:
        """The open parts that LIST_SINKS tells, of a sink or of all."""
        ext = {"sinkId": sink} if sink else {}
        answer = self.serve(frames.Command(RequestCode.LIST_SINKS, opaque=next(self._opaques), ext=ext))
        return documents.array(bodies.loads_object(answer.body), "parts")

    def ended(self, sink: str) -> SettleResult:
        """What END_BATCH does when it has seen to it that everything is confirmed, without that."""
        return asyncio.run(self._turned(self.batches._ends.end(sink)))

    async def _turned(self, answer: Awaitable[T]) -> T:
        """What it comes to, while the loop turns and the disk works."""
        task = asyncio.ensure_future(answer)
        while not task.done():
            await asyncio.sleep(0)
            self.background._cold_reader.step()
            self.flush()
        return task.result()

    async def _caught_up(self) -> bool:
        return self.is_kept

    async def _answered(self, answer: Awaitable[frames.Command | None]) -> frames.Command | None:
        """What it comes to, while the background works."""
        task = asyncio.ensure_future(answer)
        while not task.done():
            await asyncio.sleep(0)
            self.background._cold_reader.step()
        return task.result()

    def join(self, peer: str = "10.0.0.2:1") -> FakeConnection:
        """A producer of the group that can be asked."""
        self.producers.append(FakeConnection(peer))
        return self.producers[-1]

    def run_pass(self, after_ms: int = 0) -> list[Question]:
        """Let time pass and look at all halves; what the producers are asked."""
        self.clock.advance(after_ms)
        for _ in self.service.run_pass():
            pass
        return [question for producer in self.producers for question in questions(producer)]

    def tick(self) -> None:
        """What is due every second."""
        for _ in self.service.tick():
            pass

    def half_record(self, queue_offset: int) -> records.Record | None:
        """What stands at a place of the half queue."""
        entry = self.store.reader.entry(names.HALF_TOPIC, 0, queue_offset)
        return None if entry is None else self.store.reader.record_at(entry[0])

    def visible(self, topic: str = TOPIC) -> list[tuple[bytes, str]]:
        """(body, unique key) of everything that consumers of a topic can get, queue by queue."""
        return [
            (record.body, properties.parse(record.properties).get("UNIQ_KEY", ""))
            for queue in sorted(self.store.queues())
            if queue[0] == topic
            for record in self.records(*queue)
        ]

    def records(self, topic: str, queue_id: int = 0) -> Iterator[records.Record]:
        """The dispatched records of a queue."""
        low, high = self.store.queue_range(topic, queue_id) or (0, 0)
        for offset in range(low, high):
            entry = self.store.reader.entry(topic, queue_id, offset)
            record = None if entry is None else self.store.reader.record_at(entry[0])
            assert record is not None
            yield record


def questions(producer: FakeConnection) -> list[Question]:
    """The checks that it got since the last look."""
    found = []
    for command in producer.take():
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE and command.is_oneway
        record = records.view(command.body, 0, len(command.body))
        offsets = int(command.ext["tranStateTableOffset"]), int(command.ext["commitLogOffset"])
        checks = int(properties.parse(record.properties).get("TRANSACTION_CHECK_TIMES", 0))
        key = command.ext["transactionId"]
        found.append(Question(key, checks, Half(0, *offsets, key), record))
    return found
