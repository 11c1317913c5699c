"""Settling: how a transaction ends once, whoever says so, and however often.

Everything that changes a transaction goes through here, because each change is an append, and between the append and
its dispatch nothing in queues or settle map shows it yet.  That time is covered by `_pending`, by root:

    an end (37, administration)   real message (commit only) and its ops in one run
    giving up                     copy for TRANS_CHECK_MAX_TIME_TOPIC and its ops in one run
    putting back, arming again    a copy in the half queue

Ends are gathered during one turn of the loop and leave as one run, each message right before its own ops; no timer.  An
end is answered when its op is confirmed.  So a message can lack its op only where a crash cut the last run, and that
stands behind the last op message: a start looks there (`recovery`), and until what it finds is repaired nothing else
ends.  That a start need not look far, open halves or not, `mark` sees to: an op that settles nothing, when much else
has come behind the last one.  It stands in the log itself, so it cannot say more than what survived with it.

How it is known that a transaction has ended: it is pending, or the settle map has its root, or the key index has an op
message with that root; the record of the half, at whatever copy, names the root.  All of this is derived from the log,
so it is known after a restart and on another member as well, as long as the log reaches back.  Cost: 0.25 MB per
million halves for the map, an index entry per end, a look into the index for an end that comes after its half left the
map.

A second end of the same kind is answered like the first.  One of the other kind is refused (TRANSACTION_SHOULD_COMMIT
or _ROLLBACK says what it was) and counted.  An end after giving up is accepted: the business knows better now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gantry.append.acks import Acks
from gantry.append.admit import WriteGate
from gantry.append.batch import GATE_DISK_FULL
from gantry.clock import Clock
from gantry.errors import DiskFullError, Refusal, StoreError
from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.leaves.records import Record
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.store.commitlog import RunTooLongError
from gantry.transaction import half, oplog
from gantry.transaction.checker import Book
from gantry.transaction.counts import TransactionCounts
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import Outcome, Settled
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_RUN_ENDS_MAX = 64
_RUN_BYTES_MAX = 1 << 20
_FOREVER_MS = 1 << 62
_NEVER = 1 << 62
_INDEX_HITS_MAX = 8
_SAYS = {
    Outcome.COMMITTED: (ResponseCode.TRANSACTION_SHOULD_COMMIT, "was committed before"),
    Outcome.ROLLED_BACK: (ResponseCode.TRANSACTION_SHOULD_ROLLBACK, "was rolled back before"),
}


class End(NamedTuple):
    """A wish to end one transaction, validated against its half's record."""

    connection: Connection
    request: Command
    record: Record
    facts: HalfFacts
    outcome: Outcome


Change = tuple["Send | None", Settled]
"""What the end of a transaction appends beside its ops, and the end."""


class _Pending:
    """A change that is written and not dispatched yet: which record of which queue will show it."""

    __slots__ = ("copy", "outcome", "shown_at")

    def __init__(self, outcome: Outcome, shown_at: int, copy: int = -1) -> None:
        self.outcome = outcome  # OPEN: the transaction moves
        self.shown_at = shown_at  # op-queue offset, or half-queue offset while it only moves
        self.copy = copy  # where it moves to, if it moves


class Settling:
    """The one way for a transaction to change.  Loop thread only."""

    def __init__(
        self,
        store: Store,
        book: Book,
        acks: Acks,
        gate: WriteGate,
        topics: Topics,
        clock: Clock,
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self.counts = TransactionCounts()
        self._store = store
        self.book = book
        self._acks = acks
        self._gate = gate
        self._topics = topics
        self._clock = clock
        self._later = later
        self._waiting: list[End] = []
        self._pending: dict[int, _Pending] = {}
        self._owed: list[Settled] = []  # ended, and their ops are not written
        self._ops_end = 0  # behind the last op message of the log
        # What happens to a real message before it is appended: one that asks for a delay is disguised again.
        self.redirect: Callable[[Send], None] = lambda send: None

    def submit(self, end: End) -> None:
        """Settle with all others that come in this turn of the loop; the answer goes out when it is confirmed."""
        if not self._waiting:
            self._later(self.flush)
        self._waiting.append(end)

    def flush(self) -> None:
        """Append what waits."""
        waiting, self._waiting = self._waiting, []
        while waiting:
            count = _fitting(waiting)
            self._settle(waiting[:count])
            waiting = waiting[count:]

    def outcome(self, root: int) -> Outcome | None:
        """What became of a transaction, or will have when what is written is dispatched; None: nothing known."""
        pending = self._pending.get(root)
        if pending is not None and pending.outcome is not Outcome.OPEN:
            return pending.outcome
        known = self.book.outcome(root)
        return self._look_up(root) if known is None else known

    def is_moving(self, root: int) -> bool:
        """Whether a change of it is written and not dispatched."""
        return root in self._pending

    def record(self, halves_offset: int) -> Record | None:
        """The half record at a half-queue offset."""
        entry = self._store.reader.entry(names.HALF_TOPIC, 0, halves_offset)
        return None if entry is None else self._store.reader.record_at(entry[0])

    def put_back(self, root: int, record: Record, checks: int, since_ms: int) -> bool:
        """Append a copy that takes its place; False when that is not possible now."""
        return self._move(root, half.put_back(record, root, checks, since_ms), is_owed=True)

    def rearm(self, connection: Connection, request: Command, root: int, record: Record) -> Refusal | None:
        """Open again one that was given up; answered when that is confirmed."""
        copy = half.put_back(record, root, 0, self._clock.now_ms(), is_rearmed=True)
        if not self._move(root, copy):
            return self._gate.refusal or Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the copy could not be written")
        self.counts.rearmed += 1
        if not request.is_oneway:
            self._acks.park(self._store.written.offset, connection, frames.encode(reply(request)), 1)
        return None

    def give_up(self, root: int, record: Record, checks: int, since_ms: int) -> bool:
        """Move it to the topic of those that nobody answered for; False when that is not possible now."""
        self._topics.ensure(TopicConfig(names.CHECK_MAX_TIME_TOPIC, read_queues=1, write_queues=1))
        copy = half.given_up(record, root, checks, since_ms)
        if self._append([(copy, self._settled(root, Outcome.GIVEN_UP))]) is not None:
            return False
        self.counts.given_up += 1
        return True

    def repair(self, settled: Sequence[Settled] = ()) -> bool:
        """Write the ops that a crash took from these, and from those before; False when that is not possible now.

        Written or not, these transactions have ended, and no other ends before they are written.
        """
        for one in settled:
            self._pending[one.root] = _Pending(one.outcome, _NEVER)
        self._owed += settled
        while self._owed:
            part = self._owed[:_RUN_ENDS_MAX]
            changes: list[Change] = [(None, self._settled(one.root, one.outcome, *one.copies)) for one in part]
            if self._write(changes) is not None:
                return False
            del self._owed[: len(part)]
            self.counts.repaired += len(part)
        return True

    def start_from(self, ops_end: int) -> None:
        """The last op message of the log ends here."""
        self._ops_end = ops_end

    def mark(self, behind_bytes_max: int) -> bool:
        """Write an op that settles nothing, if a start now would look through more than this; whether it did."""
        oldest = self.book.oldest()
        if oldest is None or self._owed or self._gate.refusal is not None:
            return False
        if self._store.written.offset - max(oldest.log_offset, self._ops_end) <= behind_bytes_max:
            return False
        return self._run([oplog.mark(self._clock.now_ms(), self._store.store_host)]) is None

    def adopt_topics(self, wanted: Iterable[str]) -> list[str]:
        """Make the topics that open halves want and that are not there; their names."""
        return self._topics.adopt([(name, 0) for name in wanted if name])

    def shown(self, topic: str, end: int, roots: list[int]) -> None:
        """The half or op queue was dispatched up to `end`: what is pending there is in the book now."""
        is_half = topic == names.HALF_TOPIC
        for root in roots:
            pending = self._pending.get(root)
            if pending is None or (pending.outcome is Outcome.OPEN) != is_half:
                continue
            if pending.shown_at < end:
                del self._pending[root]

    def _move(self, root: int, copy: Send, is_owed: bool = False) -> bool:
        refusal = self._gate.refusal_but_for(GATE_DISK_FULL) if is_owed else self._gate.refusal
        if refusal is not None:
            return False
        try:
            self._store.append([copy], is_owed=is_owed)
        except DiskFullError as error:
            self._shut(error)
            return False
        except StoreError:
            return False
        # With nothing to wait for, the copy is dispatched already and there is nothing pending.
        if copy.log_offset >= self._store.dispatched.offset:
            self._pending[root] = _Pending(Outcome.OPEN, copy.queue_offset, copy.queue_offset)
        return True

    def _settle(self, ends: list[End]) -> None:
        """One run: what is new among these; the others are answered by what is known."""
        fresh: dict[int, End] = {}
        answered: list[End] = []
        for end in ends:
            refused = self._judge(end, fresh)
            if refused is not None:
                self._refuse(end, refused)
            else:
                answered.append(end)
        if fresh:
            refused = self._carry_out(fresh)
            if refused is not None:
                for end in answered:
                    self._refuse(end, refused)
                return
        end_offset = self._store.written.offset
        for end in answered:
            if not end.request.is_oneway:
                self._acks.park(end_offset, end.connection, frames.encode(reply(end.request)), 1)

    def _judge(self, end: End, fresh: dict[int, End]) -> Refusal | None:
        root = end.facts.root
        same = fresh.get(root)
        known = self.outcome(root) if same is None else same.outcome
        if known is None and self._was_delivered(end):
            known = Outcome.COMMITTED
        if known is None:
            self.counts.refuse("unknown transaction")
            remark = f"transaction {root} ended before this broker kept its outcome; it is not settled again"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if known is end.outcome:
            self.counts.repeated += 1
            return None
        if known in _SAYS:
            code, what = _SAYS[known]
            self.counts.conflicts += 1
            return Refusal(code, f"transaction {root} {what}")
        if end.outcome is Outcome.COMMITTED and self._topics.get(end.facts.topic) is None:
            self.counts.refuse("no such topic")
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{end.facts.topic}] not exist, apply first please!")
        fresh[root] = end
        return None

    def _carry_out(self, fresh: dict[int, End]) -> Refusal | None:
        changes: list[Change] = []
        for root, end in fresh.items():
            is_commit = end.outcome is Outcome.COMMITTED
            message = half.real_message(end.record, end.facts, self._queue_of(end.facts)) if is_commit else None
            if message is not None:
                self.redirect(message)
            changes.append((message, self._settled(root, end.outcome, end.record.queue_offset)))
        refused = self._append(changes)
        if refused is not None:
            self.counts.refuse("not written")
            return refused
        now_ms = self._clock.now_ms()
        for end in fresh.values():
            seconds = (now_ms - end.record.born_ms) / 1000
            self.counts.finish(end.facts.topic, end.outcome is Outcome.COMMITTED, seconds)
        return None

    def _append(self, changes: list[Change]) -> Refusal | None:
        if self._owed and not self.repair():
            return self._gate.refusal or Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, "op messages that a crash took could not be written yet"
            )
        return self._write(changes)

    def _write(self, changes: list[Change]) -> Refusal | None:
        """Messages and their ops in one run; what is not dispatched by then is pending."""
        run: list[Send] = []
        lasts: list[Send] = []
        now_ms, host, pending = self._clock.now_ms(), self._store.store_host, self._pending
        for message, one in changes:
            if message is not None:
                run.append(message)
            run += oplog.op_messages(one, now_ms, host)
            lasts.append(run[-1])
        moving = {one.root: before.copy for _, one in changes if (before := pending.get(one.root)) is not None}
        refused = self._run(run)
        if refused is not None:
            return refused
        dispatched = self._store.dispatched.offset
        for (_, one), last in zip(changes, lasts, strict=True):
            if last.log_offset < dispatched:
                pending.pop(one.root, None)
            else:
                pending[one.root] = _Pending(one.outcome, last.queue_offset, moving.get(one.root, -1))
        return None

    def _run(self, run: list[Send]) -> Refusal | None:
        """Append what ends with an op."""
        if self._gate.refusal is not None:
            return self._gate.refusal
        try:
            # Only what asks for a delay is altered again after its properties were scanned.
            is_scanned = not any(send.traits & properties.TRAIT_DELAY for send in run)
            self._ops_end = self._store.append(run, together=True, is_scanned=is_scanned)
        except DiskFullError as error:
            return self._shut(error)
        except RunTooLongError as error:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"too long for a segment: {error}")
        except StoreError as error:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
        return None

    def _settled(self, root: int, outcome: Outcome, *named: int) -> Settled:
        """The op names every place where the transaction may stand, also a copy that is on its way."""
        places = dict.fromkeys(named)
        known = self.book.find(root)
        if known is not None:
            places[known.current] = None
        pending = self._pending.get(root)
        if pending is not None and pending.copy >= 0:
            places[pending.copy] = None
        return Settled(root, outcome, tuple(place for place in places if place != root))

    def _queue_of(self, facts: HalfFacts) -> int:
        """The queue that the message asked for; another one when the topic has shrunk since."""
        topic = self._topics.get(facts.topic)
        assert topic is not None, "ends of unknown topics are refused"
        queues = max(topic.write_queues, topic.read_queues, 1)
        return facts.queue_id if 0 <= facts.queue_id < queues else facts.queue_id % max(topic.write_queues, 1)

    def _look_up(self, root: int) -> Outcome | None:
        """The newest op message with this root."""
        hits = self._store.reader.query(names.OP_HALF_TOPIC, str(root), _INDEX_HITS_MAX, 0, _FOREVER_MS)
        newest: tuple[int, Outcome] | None = None
        for hit in hits:
            found = records.view(hit, 0, len(hit))
            for one in oplog.settled_in(found.properties) or ():
                if one.root == root and (newest is None or newest[0] < found.log_offset):
                    newest = found.log_offset, one.outcome
        return None if newest is None else newest[1]

    def _was_delivered(self, end: End) -> bool:
        """Whether the real message stands in its topic: a commit by RocketMQ's broker, before our time."""
        key = end.facts.unique_key
        hits = self._store.reader.query(end.facts.topic, key, _INDEX_HITS_MAX, 0, _FOREVER_MS) if key else []
        found = [records.view(hit, 0, len(hit)) for hit in hits]
        return any(one.prepared_offset == end.record.log_offset for one in found)

    def _shut(self, error: DiskFullError) -> Refusal:
        refused = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
        self._gate.shut(GATE_DISK_FULL, refused)
        return refused

    def _refuse(self, end: End, why: Refusal) -> None:
        if not end.request.is_oneway:
            end.connection.write(frames.encode(refusal(end.request, why)))


def _fitting(ends: list[End]) -> int:
    """How many of the first ends go into one run."""
    total = 0
    for number, end in enumerate(ends[:_RUN_ENDS_MAX]):
        total += len(end.record.body) + len(end.record.properties)
        if number and total > _RUN_BYTES_MAX:
            return number
    return min(len(ends), _RUN_ENDS_MAX)
