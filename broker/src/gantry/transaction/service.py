"""The check service: it carries out what the rules of `checker` decide, in slices, and saves the positions.

A *pass* goes over the open halves once per interval, oldest first.  Each is left alone, checked or given up; a half of
a batch is ended as its sink decided.  The check (CHECK_TRANSACTION_STATE, 39) is one-way and goes to the live
connections of the producer group in turn, no matter which of them sent the half; it counts only when it was written.  A
connection with too much output is skipped.  The next pass begins where this one could not go on, so that a slow
producer's oldest halves do not keep its others from being checked.  Halves whose record is no longer in memory are
brought in by the cold reader first, a batch at a time (`store.coldsteps`); so are those that are put back.

`tick`, once a second: repairs are tried again, a mark is written when one is due, positions are saved, halves that have
to move are put back.  Positions are saved only when the log that they were derived from is durable.  Otherwise a power
cut could leave a position behind a half whose end it removed.  The two positions need not be of the same moment.

No step waits; what a pass cannot do is done in the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from gantry.clock import SteadyClock
from gantry.leaves import records
from gantry.metadata.offsets import Offsets
from gantry.model import names
from gantry.store.coldsteps import ColdSteps, Places
from gantry.store.recovery import Start
from gantry.transaction import half as halves
from gantry.transaction.checker import CheckAction, CheckPolicy, OpenHalf, decide
from gantry.transaction.decisions import Decisions
from gantry.transaction.endruns import SettleRequest
from gantry.transaction.grouprule import GroupRule
from gantry.transaction.half import HalfFacts
from gantry.transaction.moving import HalfMoves
from gantry.transaction.oplog import Settled, TransactionState, settled_in
from gantry.transaction.recovery import enter, foreign, ops_end, read_back, unlogged
from gantry.transaction.settle import Settling
from gantry.wire import headers
from gantry.wire.codes import RequestCode
from gantry.wire.command import oneway

if TYPE_CHECKING:
    from gantry.leaves.records import Entry, Record
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_PASS_S_MAX = 60.0
_LOOKED_AT_ONCE = 512
_ACTS_AT_ONCE = 16
_TURNS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The functions of the rest of the broker that the service uses."""

    producers: Callable[[str], Iterable[Connection]]  # live connections of a producer group
    subscribed: Callable[[str], Iterable[str]]  # topics of a consumer group
    say: Callable[[str, str], object]  # (cause, text): a log line per cause and minute
    broker_name: str


class _Positions(NamedTuple):
    half: int
    op: int
    log_end: int  # what they were derived from


class CheckService:
    """Checks open transactions; owner of the book.  Loop thread only."""

    def __init__(
        self,
        store: Store,
        offsets: Offsets,
        clock: SteadyClock,
        settling: Settling,
        rules: CheckPolicy,
        outside: CheckContext,
        decisions: Decisions,
    ) -> None:
        self.book = settling.book
        self.decisions = decisions
        self.settling = settling
        self.rules = rules
        self.counts = settling.counts
        self.group_rule = GroupRule(outside.say)
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._outside = outside
        self._turns: dict[str, int] = {}  # by group: the connection whose turn it is
        self._go_on_at = 0  # the half-queue offset at which the last pass could not go on
        self._passing = ColdSteps(store, self._pass)
        self.moves = HalfMoves(store, settling, rules, clock, outside.say)
        self._positions: _Positions | None = None

    def recover(self) -> Iterator[None]:
        """Read open transactions back and repair missing ops; before the first message is accepted.

        Nothing is appended meanwhile, and all that is in the log is confirmed.
        """
        reader = self._store.reader
        self._store.on_dispatched(self._on_dispatched)
        self._store.retention.owe(self._owed_from)
        for _ in read_back(reader, self._offsets, self.book):
            yield
        if self._store.report.start is not Start.CLEAN:
            self._adopt_topics()
        self.settling.start_from(ops_end(reader))
        ended: list[Settled] = []
        for found in unlogged(reader, self.book):
            ended += found
            yield
        self.settling.repair(ended)

    def run_pass(self) -> Iterator[None]:
        """Go over every half that is open now, once, in slices."""
        yield from self._passing.go_on()
        yield from self.group_rule.look_at_consumers(self._outside.subscribed)

    def _pass(self) -> Iterator[Places]:
        self.counts.passes += 1
        begun_ms, begun_s = self._clock.look(), self._clock.monotonic()
        offsets = list(self.book.open)
        first = bisect_left(offsets, self._go_on_at)
        self._go_on_at = 0
        ordered = chain(islice(offsets, first, None), islice(offsets, first))
        while part := list(islice(ordered, _LOOKED_AT_ONCE)):
            todo: list[tuple[OpenHalf, Callable[[OpenHalf], None]]] = []
            for offset in part:
                half = self.book.open.get(offset)
                act = None if half is None else self._action(half, begun_ms)
                if half is not None and act is not None:
                    todo.append((half, act))
            for at in range(0, len(todo), _ACTS_AT_ONCE):
                batch = todo[at : at + _ACTS_AT_ONCE]
                yield [(half.log_offset, half.size) for half, _ in batch]
                for half, act in batch:
                    if self.moves.is_still(half):
                        act(half)
                        yield ()
            yield ()
            if self._clock.monotonic() - begun_s > _PASS_S_MAX:
                self._go_on_at = part[-1]
                return

    def _action(self, half: OpenHalf, begun_ms: int) -> Callable[[OpenHalf], None] | None:
        """Return what is to be done to a half in a pass; None: nothing."""
        if self.settling.is_moving(half.root):
            return None
        decision = decide(half, self._clock.passed_ms(half.since_ms, begun_ms), self.rules)
        if decision is CheckAction.JUDGE:
            return self._judge if self._verdict(half) is not TransactionState.OPEN else None
        if decision is CheckAction.ASK or (decision is not CheckAction.WAIT and half.root in self.moves.unmovable):
            return self._ask
        if decision is CheckAction.GIVE_UP or (decision is CheckAction.UNANSWERED and self._connected(half)):
            return self._give_up
        return None

    def tick(self) -> Iterator[None]:
        """Once a second: repairs, marks, positions, halves to put back; in slices."""
        self.settling.repair()
        self.settling.mark(self.rules.unmarked_bytes_max)
        self._save_positions()
        yield
        yield from self.moves.go_on()

    def _on_dispatched(self, topic: str, queue_id: int, end: int, entries: list[Entry]) -> None:
        if topic == names.HALF_TOPIC and queue_id == 0:
            self._enter_halves(end, entries)
        elif topic == names.OP_HALF_TOPIC and queue_id == 0:
            self._enter_ops(end, entries)

    def _enter_halves(self, end: int, entries: list[Entry]) -> None:
        at = 0
        moved = []
        while at < len(entries):
            # Those begin their transactions: no request can name them before this, so no change of them is pending.
            entered, pairs = self.book.add_halves(entries, at)
            at += len(entered)
            for group, topic in pairs:
                self.group_rule.note_half(group, topic)
            if at < len(entries):
                root = self._enter_half(entries[at])
                if self.settling.is_moving(root):
                    moved.append(root)
                at += 1
        if moved:
            self.settling.shown(names.HALF_TOPIC, end, moved)

    def _enter_half(self, entry: Entry) -> int:
        facts = HalfFacts(entry.properties, entry.queue_offset)
        place = entry.log_offset, entry.size
        enter(self.book, facts, entry.queue_offset, place, entry.store_ms)
        if facts.root == entry.queue_offset:
            self.group_rule.note_half(facts.group, facts.topic)
        return facts.root

    def _enter_ops(self, end: int, entries: list[Entry]) -> None:
        at = 0
        roots = []
        while at < len(entries):
            closed = self.book.add_ops(entries, at)
            at += len(closed)
            roots += closed
            if at < len(entries):
                roots += self._enter_op(entries[at])
                at += 1
        self.settling.shown(names.OP_HALF_TOPIC, end, roots)

    def _enter_op(self, entry: Entry) -> list[int]:
        settled = settled_in(entry.properties)
        if settled is None:
            record = self._store.reader.record_at(entry.log_offset)
            settled = [] if record is None else _completed(foreign(self._store.reader, self.book, record))
        self.book.add_op(entry.queue_offset, settled)
        return [one.root for one in settled]

    def _adopt_topics(self) -> None:
        """Create missing topics of open halves: a crash may have come before the topic was saved."""
        for name in self.settling.adopt_topics(self.book.topics):
            self._outside.say(f"adopted {name}", f"topic {name} has open halves and was not saved: made again")

    def _owed_from(self) -> int | None:
        """Return the log offset from which retention may remove nothing; None when no transaction is open."""
        oldest = self.book.oldest()
        return None if oldest is None else oldest.log_offset

    def _connected(self, half: OpenHalf) -> list[Connection]:
        """Return the live connections of the half's group; count and log it when there is none."""
        connections = [one for one in self._outside.producers(half.group) if not one.closed]
        if not connections:
            self.counts.alone += 1
            self._outside.say(
                f"alone {half.group}",
                f"no producer of {half.group!r} is connected; its open halves cannot be asked about",
            )
        return connections

    def _judge(self, half: OpenHalf) -> None:
        """End a half of a batch as its sink decided, if every copy of the group has the decision."""
        outcome = self._verdict(half)
        if outcome is not TransactionState.OPEN:
            self.counts.judged += 1
            self.settling.submit(SettleRequest(None, None, half, outcome))

    def _verdict(self, half: OpenHalf) -> TransactionState:
        assert half.batch is not None
        return self.decisions.verdict(half.batch)

    def _ask(self, half: OpenHalf) -> None:
        connections = self._connected(half)
        if not connections:
            return
        writable = [one for one in connections if one.is_writable]
        if not writable:
            self.counts.full += 1
            self._go_on_at = self._go_on_at or half.current
            return
        record = self.moves.record(half)
        if record is None or not half.topic:
            return
        turn = self._turns.pop(half.group, 0)
        self._turns[half.group] = turn + 1
        if len(self._turns) > _TURNS_MAX:
            del self._turns[next(iter(self._turns))]
        connection = writable[turn % len(writable)]
        half.checks += 1
        facts = HalfFacts(record.properties, record.queue_offset)
        connection.send_oneway(oneway(RequestCode.CHECK_TRANSACTION_STATE, *self._question(half, record, facts)))
        self.counts.asked += 1

    def _question(self, half: OpenHalf, record: Record, facts: HalfFacts) -> tuple[dict[str, str], bytes]:
        """Make header and body of request 39: the body is a whole record, as if it were in its own topic.

        gantryAge: for how many ms the half has been stored; a client's clock cannot tell.
        """
        send = halves.question(record, facts, half.checks)
        send.queue_offset = record.queue_offset
        body = bytearray(records.size_of(send, len(record.store_host)))
        records.encode_run(body, 0, record.log_offset, [send], record.store_ms, record.store_host)
        offset_id = records.offset_message_id(self._store.store_host, record.log_offset)
        ext = headers.to_ext(
            topic=names.HALF_TOPIC,
            tranStateTableOffset=record.queue_offset,
            commitLogOffset=record.log_offset,
            msgId=facts.unique_key or offset_id,
            transactionId=facts.unique_key or None,
            offsetMsgId=offset_id,
            bname=self._outside.broker_name,
            gantryAge=self._clock.elapsed_ms(half.since_ms),
        )
        return ext, bytes(body)

    def _give_up(self, half: OpenHalf) -> None:
        record = self.moves.movable(half)
        if record is None:
            return
        if self.settling.give_up(half.root, record, half.checks, half.since_ms):
            self._outside.say(
                f"given up {half.group}",
                f"transaction {half.root} of {half.group!r} for {half.topic} is given up after {half.checks} checks; "
                "see `gantry tx ls --state given-up`, then commit, rollback or rearm it",
            )

    def _save_positions(self) -> None:
        known, store = self._positions, self._store
        if known is not None and store.flushed.offset < known.log_end:
            return
        if known is not None:
            self._offsets.commit(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0, known.half)
            self._offsets.commit(names.TRANSACTION_GROUP, names.OP_HALF_TOPIC, 0, known.op)
        if self.book.half_end:
            self._positions = _Positions(self.book.half_offset, self.book.op_offset, store.dispatched.offset)

    def state(self) -> Mapping[str, int]:
        """Figures for /metrics and administration."""
        oldest = self.book.oldest()
        return {
            "open": len(self.book.open),
            "oldestMs": 0 if oldest is None else self._clock.elapsed_ms(oldest.since_ms),
            "mapBytes": self.book.map.bytes,
            "halfOffset": self.book.half_offset,
            "opOffset": self.book.op_offset,
        }


def _completed(steps: Generator[None, None, list[Settled]]) -> list[Settled]:
    """Run it to its end: only RocketMQ's ops need it, and none of them comes while a broker of ours is running."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(end.value)
