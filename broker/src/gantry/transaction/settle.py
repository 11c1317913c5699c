"""Settling: a transaction ends once, no matter which requests end it, and how often they come.

Every change of a transaction is made here, because each change is an append, and between the append and
its dispatch it is neither in queues nor in the settle map.  For that time `pending` holds it, by root:

    an end (37, administration)   real message (commit only) and its ops in one run
    giving up                     copy for TRANS_CHECK_MAX_TIME_TOPIC and its ops in one run
    putting back, arming again    a copy in the half queue

Ends are gathered during one turn of the loop (`endruns`) and appended as one run, each message right before its own
ops: the usual ones by compiled code, others one by one.  An end is answered when its op is confirmed.  So a message can
lack its op only where a crash cut the last run, behind the last op.  A start looks there (`recovery`), and until that
is repaired no other transaction ends.  `mark` bounds how far a start has to look, by an op that settles nothing.

A transaction has ended when an end is pending, or the settle map has its root, or the key index has an op message with
that root; the record of the half and of each copy names the root.  All of this is derived from the log, so it is known
after a restart and on other members as well, as far back as the log goes.

A second end of the same kind is answered like the first.  One of the other kind is refused (TRANSACTION_SHOULD_COMMIT
or _ROLLBACK says what it was) and counted.  An end after giving up is accepted: the producer has the answer now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gantry.append.acks import Acks
from gantry.append.admit import WriteGate
from gantry.append.writing import append_copies, append_run
from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.leaves import frames, openhalves, properties
from gantry.leaves.records import PROPERTIES_BYTES_MAX, Record
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.transaction import endruns, oplog
from gantry.transaction import half as halves
from gantry.transaction.checker import Book, OpenHalf
from gantry.transaction.counts import LATENCY_BOUNDS_S, TransactionCounts
from gantry.transaction.endruns import EndRun, SettleRequest, Waiting
from gantry.transaction.oplog import Settled, TransactionState
from gantry.transaction.pending import Pending
from gantry.wire.codes import ResponseCode
from gantry.wire.command import Request, refusal

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_REPAIRS_MAX = 64
_DELAYS = properties.TRAIT_DELAY | properties.TRAIT_TIMER_CANCEL
_FAILED = Refusal(ResponseCode.SYSTEM_ERROR, "settling failed; whether the transaction has ended is unknown, ask again")
_NO_ROOM = Refusal(
    ResponseCode.MESSAGE_ILLEGAL, "the properties of this half, which an older or another broker stored, leave no room"
)
_SAYS = {
    TransactionState.COMMITTED: (ResponseCode.TRANSACTION_SHOULD_COMMIT, "was committed before"),
    TransactionState.ROLLED_BACK: (ResponseCode.TRANSACTION_SHOULD_ROLLBACK, "was rolled back before"),
}
Change = tuple["Send | None", Settled]  # what an end appends beside its ops, and the end


class Settling:
    """Makes all changes of transactions.  Loop thread only."""

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
        self._waiting: list[Waiting] = []
        self._pending = Pending()
        self._owed: list[Settled] = []  # ended, but their ops are not written yet
        self._ops_end = 0  # behind the last op message of the log
        # What happens to a real message before it is appended: one that asks for a delay is disguised again.
        self.redirect: Callable[[Send], None] = lambda send: None

    def submit(self, *waiting: Waiting) -> None:
        """Settle together with all others of this turn of the loop; the answers are sent when it is confirmed."""
        if not self._waiting:
            self._later(self.flush)
        self._waiting += waiting

    def flush(self) -> None:
        """Append the ends that were submitted in this turn of the loop, in their order."""
        waiting, self._waiting = self._waiting, []
        segment_bytes = self._store.settings.segment_bytes
        try:
            while waiting:
                if runs := endruns.first_runs(waiting, segment_bytes):
                    is_done = self._settle_runs(runs)
                    waiting[: len(runs)] = [] if is_done else endruns.requests_of(runs)
                else:
                    requests = endruns.first_requests(waiting, segment_bytes)
                    self._settle(requests)
                    del waiting[: len(requests)]
        finally:
            # Something is left only after an exception, which is a bug: its clients get an answer all the same.
            for request in endruns.requests_of(waiting):
                self.counts.refuse("failed")
                self.refuse(request, _FAILED)

    def outcome(self, root: int) -> TransactionState | None:
        """Return how a transaction ended, or ends when what is written is dispatched; None: no table knows."""
        ended = self._pending.outcome(root)
        return self.book.outcome(root) if ended is None else ended

    def is_known(self, root: int) -> bool:
        """Return whether a table knows the outcome, so that no look-up in the log is needed."""
        return root in self._pending or self.book.outcome(root) is not None

    def is_moving(self, root: int) -> bool:
        """Return whether a change of the transaction is written and not dispatched."""
        return root in self._pending

    def put_back(self, root: int, record: Record, checks: int, since_ms: int) -> Refusal | None:
        """Append a copy that replaces the half; return why not, if refused."""
        return self._move(root, halves.put_back(record, root, checks, since_ms), is_owed=True)

    def rearm(self, connection: Connection, request: Request, root: int, record: Record) -> Refusal | None:
        """Open a transaction again that was given up; answered when that is confirmed.  Return why not, if refused."""
        if not halves.has_room(record.properties):
            return _NO_ROOM
        copy = halves.put_back(record, root, 0, self._clock.now_ms(), is_rearmed=True)
        refused = self._move(root, copy)
        if refused is not None:
            return refused
        self.counts.rearmed += 1
        if not request.is_oneway:
            self._acks.park(self._store.written.offset, connection, frames.encode_success(request.opaque), 1)
        return None

    def give_up(self, root: int, record: Record, checks: int, since_ms: int) -> bool:
        """Copy the half to the topic of given-up halves and end it; return False when that is not possible now."""
        self._topics.ensure(TopicConfig(names.CHECK_MAX_TIME_TOPIC, read_queues=1, write_queues=1))
        copy = halves.given_up(record, root, checks, since_ms)
        if self._append([(copy, self._settled(root, TransactionState.GIVEN_UP))]) is not None:
            return False
        self.counts.given_up += 1
        return True

    def repair(self, settled: Sequence[Settled] = ()) -> Refusal | None:
        """Write the missing ops of these and of earlier repairs; return why not, if refused.

        These transactions have ended, also before their ops are written; no other transaction ends before that.
        """
        for one in settled:
            self._pending.ends(one.root, one.outcome)
        self._owed += settled
        while self._owed:
            part = self._owed[:_REPAIRS_MAX]
            changes: list[Change] = [(None, self._settled(one.root, one.outcome, *one.copies)) for one in part]
            refused = self._write(changes)
            if refused is not None:
                return refused
            del self._owed[: len(part)]
            self.counts.repaired += len(part)
        return None

    def start_from(self, ops_end: int) -> None:
        """Set the log offset at which the last op message ends."""
        self._ops_end = ops_end

    def mark(self, behind_bytes_max: int) -> bool:
        """Write a mark if a start would have to read more than this behind the last op; return whether it did."""
        oldest = self.book.oldest()
        if oldest is None or self._owed or self._gate.refusal is not None:
            return False
        if self._store.written.offset - max(oldest.log_offset, self._ops_end) <= behind_bytes_max:
            return False
        return self._run([oplog.mark(self._clock.now_ms(), self._store.store_host)]) is None

    def adopt_topics(self, wanted: Iterable[str]) -> list[str]:
        """Create missing topics of open halves; return their names."""
        return self._topics.adopt([(name, 0) for name in wanted if name])

    def shown(self, topic: str, end: int, roots: list[int]) -> None:
        """Forget pending changes of these roots: the half or op queue was dispatched up to `end`."""
        self._pending.shown(topic == names.HALF_TOPIC, end, roots)

    def _move(self, root: int, copy: Send, is_owed: bool = False) -> Refusal | None:
        end = append_copies(self._store, self._gate, [copy], is_owed=is_owed)
        if isinstance(end, Refusal):
            return end
        # A copy that begins its transaction (a half that RocketMQ gave up) has no place that others name before its
        # dispatch.  Below the dispatched mark the append was confirmed at once.
        if copy.queue_offset != root and copy.log_offset >= self._store.dispatched.offset:
            self._pending.moves(root, copy.queue_offset)
        return None

    def _settle_runs(self, runs: list[EndRun]) -> bool:
        """Settle these in one run without a look at each; return False, with nothing done, where one needs it."""
        if self._owed:
            return False
        ends = [end for run in runs for end in run.ends]
        named = [half for run in runs for half in run.halves]
        now_ms = self._clock.now_ms()
        stamp = names.OP_HALF_TOPIC, now_ms, self._store.store_host
        stretch = self._store.reader.stretch(named[0].log_offset)
        known = self.book.open, self._pending.changes
        laid = openhalves.lay_out(ends, named, known, stretch, self._topics.queues_of, stamp)
        if laid is None:
            return False
        refused = self._run(laid[0])
        if refused is not None:
            self._not_written(endruns.requests_of(runs), refused)
            return True
        if self._ops_end > (dispatched := self._store.dispatched.offset):
            self._pending.end_all(ends, named, laid[1], dispatched)
        self.counts.finish_all(openhalves.tally(ends, named, now_ms, LATENCY_BOUNDS_S))
        written = self._store.written.offset
        for connection, replies, count in endruns.replies(runs):
            self._acks.park(written, connection, replies, count)
        return True

    def _settle(self, requests: list[SettleRequest]) -> None:
        """Settle these in one run; those that have ended already are answered from the known outcome."""
        fresh: dict[int, SettleRequest] = {}
        changes: list[Change] = []
        answered: list[SettleRequest] = []
        for request in requests:
            known = self._known(request, fresh)
            if known is not request.outcome:
                change = self._change(request, known)
                if isinstance(change, Refusal):
                    self.refuse(request, change)
                    continue
                fresh[request.half.root] = request
                changes.append(change)
            else:
                self.counts.repeated += 1
            answered.append(request)
        refused = self._append(changes) if changes else None
        if refused is not None:
            self._not_written(answered, refused)
            return
        now_ms = self._clock.now_ms()
        for one in fresh.values():
            is_commit = one.outcome is TransactionState.COMMITTED
            self.counts.finish(one.half.topic, is_commit, (now_ms - one.half.since_ms) / 1000)
        self._answer(answered)

    def _answer(self, requests: list[SettleRequest]) -> None:
        """Answer all of them with SUCCESS when everything written so far is confirmed."""
        replies: dict[Connection, list[bytes]] = {}
        for request in requests:
            if (asker := request.asker) is not None:
                replies.setdefault(asker[0], []).append(frames.encode_success(asker[1].opaque))
        end = self._store.written.offset
        for connection, parts in replies.items():
            self._acks.park(end, connection, b"".join(parts), len(parts))

    def _known(self, request: SettleRequest, fresh: dict[int, SettleRequest]) -> TransactionState | None:
        """Return how the transaction ended, also by an earlier end of this run; None: not known."""
        half = request.half
        root = half.root
        same = fresh.get(root)
        if same is not None:
            return same.outcome
        if root not in self._pending and self.book.open.get(half.current) is half:
            return TransactionState.OPEN
        known = self.outcome(root)
        return request.found if known is None else known

    def _change(self, request: SettleRequest, known: TransactionState | None) -> Change | Refusal:
        """Return the message and op that end the transaction, or why it does not end that way."""
        half = request.half
        if known is not TransactionState.OPEN and (refused := self._ended(half, known)) is not None:
            return refused
        settled = self._settled(half.root, request.outcome, half.current)
        if request.outcome is not TransactionState.COMMITTED:
            return None, settled
        topic = self._topics.get(half.topic)
        if topic is None:
            self.counts.refuse("no such topic")
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{half.topic}] not exist, apply first please!")
        message = self._store.reader.message(half.log_offset, half.size)
        if message is None:
            self.counts.refuse("unreadable half")
            return Refusal(ResponseCode.SYSTEM_ERROR, f"the half at log offset {half.log_offset} cannot be read")
        halves.make_real(message, half.topic, halves.queue_of(topic, half.queue_id), half.log_offset)
        if message.traits & _DELAYS:
            self.redirect(message)
            if len(message.properties) > PROPERTIES_BYTES_MAX:
                self.counts.refuse("no room")
                return _NO_ROOM
        return message, settled

    def _ended(self, half: OpenHalf, known: TransactionState | None) -> Refusal | None:
        """Return why a transaction that is not open cannot end now; None when it can."""
        if known is None:
            self.counts.refuse("unknown transaction")
            remark = f"transaction {half.root} ended before this broker kept its outcome; it is not settled again"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if known in _SAYS:
            code, what = _SAYS[known]
            self.counts.conflicts += 1
            return Refusal(code, f"transaction {half.root} {what}")
        return None

    def _append(self, changes: list[Change]) -> Refusal | None:
        refused = self.repair() if self._owed else None
        return self._write(changes) if refused is None else refused

    def _write(self, changes: list[Change]) -> Refusal | None:
        """Append messages and their ops in one run; changes that are not dispatched then are pending."""
        run: list[Send] = []
        lasts: list[Send] = []
        is_scanned = True
        now_ms, host, pending = self._clock.now_ms(), self._store.store_host, self._pending
        for message, one in changes:
            if message is not None:
                # Only a delayed message is changed again after its properties were scanned.
                is_scanned = is_scanned and not message.traits & _DELAYS
                run.append(message)
            run += oplog.op_messages(one, now_ms, host)
            lasts.append(run[-1])
        refused = self._run(run, is_scanned)
        if refused is not None:
            return refused
        dispatched = self._store.dispatched.offset
        if not pending and self._ops_end <= dispatched:
            return None
        for (_, one), last in zip(changes, lasts, strict=True):
            if last.log_offset < dispatched:
                pending.forget(one.root)
            else:
                pending.ends(one.root, one.outcome, last.queue_offset)
        return None

    def _run(self, run: list[Send], is_scanned: bool = True) -> Refusal | None:
        """Append a run whose last record is an op; return why not, if refused."""
        if self._gate.refusal is not None:
            return self._gate.refusal
        end = append_run(self._store, self._gate, run, together=True, is_scanned=is_scanned)
        if isinstance(end, Refusal):
            return end
        self._ops_end = end
        return None

    def _settled(self, root: int, outcome: TransactionState, *named: int) -> Settled:
        """Return the end with every place of the transaction, also a copy that is not dispatched yet."""
        copy = self._pending.copy(root)
        known = self.book.find(root)
        if copy < 0 and known is not None and known.current == root and (not named or named == (root,)):
            return Settled(root, outcome)  # nearly all of them
        places = dict.fromkeys(named)
        if known is not None:
            places[known.current] = None
        if copy >= 0:
            places[copy] = None
        return Settled(root, outcome, tuple(place for place in places if place != root))

    def _not_written(self, requests: list[SettleRequest], why: Refusal) -> None:
        self.counts.refuse("not written")
        for request in requests:
            self.refuse(request, why)

    def refuse(self, request: SettleRequest, why: Refusal) -> None:
        if (asker := request.asker) is not None:
            asker[0].write(frames.encode(refusal(asker[1], why)))
