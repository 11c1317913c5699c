"""Decisions about the batches of sinks: one for each batch, kept in every copy of the group's metadata.

    commit      the first one for (sink, batch) names the parts that the batch is made of, and the groups where they
                are.  It is final, and later requests get it as their answer.  Another owner (a query with other
                rows under the same sink and number) is refused: it must not take the decision for its own
    abort       these parts are never committed; the batch is still open to others
    done        everything of the batch has ended, in every group: the names of its parts are no longer needed
    reserve     a group that is not the sink's home agrees, before the home decides, that it will learn the decision: it
                has room for the sink, knows no other home of it, and no batch as late as this one
    learn       a group that is not the sink's home gets a decision with a request to end its halves

A group that knows a later batch of a sink rolls back all halves of earlier ones.  So a group that still has a sink
which its home has forgotten would drop rows of a new query under the old name; `reserve` finds this before anything is
decided.

A sink decides its batches in their order, and the next one only when the last one is done.  That makes the state small:
of each sink the newest decided batch (its parts only until it is done) and what was aborted behind it.  What is left
open of a batch up to that one, and is not among its parts, can never be committed any more, even if its name is not in
the table: it is rolled back.

Bounds, and why no decision that is still needed is lost:

    sinks       `SINKS_MAX`.  A sink that was for one batch only (`is_passing`) is forgotten a day after it is done:
                its name is never used again.  In a full table one older row makes room for each new one (`_oldest`):
                passing sinks that are done and copies of other homes' decisions after an hour, then sinks that are at
                home here, done, and idle for 90 days.  If there is none of these the new sink is refused
    parts       `PARTS_MAX` a batch, `NAMES_MAX` of all batches that are not done, the groups where they are counted in;
                more are refused, nothing is decided
    aborted     `NAMES_MAX` together.  Where there is no room, names older than an hour are removed, never younger ones:
                the commit that an abort prevents was sent before it, by the same process, and no request is under way
                for an hour.  If that does not make room the abort is refused, and its halves stay open

A decision takes effect and is returned only when every copy of the home group has it (`confirm`): every change has a
number, and `confirm` is called with the number up to which the copies have them.  A decision that only this process
has could be replaced by another one after a failover, when a part of its messages is already delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gantry.errors import Refusal
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents
from gantry.transaction.batches import BatchKey
from gantry.transaction.oplog import TransactionState
from gantry.transaction.sinks import (
    Batch,
    Sink,
    not_his,
    not_ours,
    sink_of,
    why_not,
    why_not_now,
    why_not_reserved,
)
from gantry.wire.codes import ResponseCode

SINKS_MAX = 4096
NAMES_MAX = 65_536
PASSING_KEPT_MS = 24 * 3_600_000
ABORTED_KEPT_MS = 3_600_000
YOUNG_MS = 3_600_000  # a row that changed in the last hour never makes room for another
IDLE_MS = 90 * 24 * 3_600_000


class DecisionCounts:
    """Since the start, for /metrics."""

    __slots__ = ("aborted", "committed", "done", "learned", "refused", "repeated")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.repeated = 0  # commits of batches that had been decided
        self.done = 0
        self.learned = 0
        self.refused = 0


class Decisions:
    """The decisions of one group.  Loop thread only; implements `broker.role.master_role.Gathered`."""

    def __init__(self, state: State, group: str) -> None:
        self.counts = DecisionCounts()
        self.touched: set[str] | None = None  # names of changed sinks, for replication; None without
        self.number = 0
        self._confirmed = 0
        self.file = TableFile(state, "sinkDecisions.json", self._to_document)
        self._group = group
        self._sinks: dict[str, Sink] = {}
        self.file.load(self._read)

    def __len__(self) -> int:
        return len(self._sinks)

    @property
    def is_confirmed(self) -> bool:
        """Return whether every copy of the group has every change."""
        return self._confirmed >= self.number

    def confirm(self, number: int) -> None:
        """Record that every copy of the group has the changes up to this number."""
        self._confirmed = max(self._confirmed, number)

    def find(self, sink: str) -> Sink | None:
        """Return the row of a sink, confirmed or not; None when it is not known."""
        return self._sinks.get(sink)

    def verdict(self, key: BatchKey) -> TransactionState:
        """Return how an open half has to end: committed, rolled back, or OPEN while that is not decided."""
        sink = self._sinks.get(key.sink)
        if sink is None or sink.number > self._confirmed:
            return TransactionState.OPEN
        return self.verdict_to_be(key)

    def verdict_to_be(self, key: BatchKey) -> TransactionState:
        """Like `verdict`, but also by unconfirmed decisions; only for counting what has still to be ended."""
        sink = self._sinks.get(key.sink)
        if sink is None:
            return TransactionState.OPEN
        if key.batch > sink.batch:
            return TransactionState.ROLLED_BACK if (key.batch, key.part) in sink.aborted else TransactionState.OPEN
        is_chosen = key.batch == sink.batch and sink.parts is not None and key.part in sink.parts
        return TransactionState.COMMITTED if is_chosen else TransactionState.ROLLED_BACK

    def commit(
        self, batch: Batch, parts: Iterable[str], now_ms: int, groups: Collection[str] = ()
    ) -> Refusal | None:
        """Decide a batch unless it is decided already; return why that is refused, None when the decision is stored."""
        sink = self._sinks.get(batch.sink)
        if sink is not None and batch.number == sink.batch:
            if batch.owner and sink.owner and batch.owner != sink.owner:
                self.counts.refused += 1
                return not_his(batch, sink)
            self.counts.repeated += 1
            return None
        wanted, where = frozenset(parts), frozenset(groups)
        refused = why_not(batch, wanted, where) or why_not_now(batch, sink, wanted)
        if refused is None and len(wanted) + len(where) + self._names() > NAMES_MAX:
            remark = f"{NAMES_MAX} names of batches are not done, which is the limit; end some, see `gantry tx resolve`"
            refused = Refusal(ResponseCode.SYSTEM_BUSY, remark)
        refused = refused or self._room(batch.sink, now_ms)
        if refused is not None:
            self.counts.refused += 1
            return refused
        decided = self._decide(batch, wanted, now_ms)
        decided.groups, decided.owner = where, batch.owner
        self.counts.committed += 1
        return None

    def reserve(self, batch: Batch, now_ms: int) -> Refusal | None:
        """Agree to learn the home's decision about this batch: the sink gets a row.  Return why not, if refused."""
        sink = self._sinks.get(batch.sink)
        refused = why_not(batch, frozenset()) or why_not_reserved(batch, sink, self._group)
        refused = refused or self._room(batch.sink, now_ms)
        if refused is not None:
            self.counts.refused += 1
        elif sink is not None:
            sink.decided_ms = max(sink.decided_ms, now_ms)  # it stays until the decision comes
        else:
            self._sinks[batch.sink] = Sink(batch.home, decided_ms=now_ms, is_passing=batch.is_passing)
            self._touch(batch.sink)
            self._sinks[batch.sink].number = 0
        return refused

    def learn(self, batch: Batch, parts: Iterable[str] | None, now_ms: int) -> Refusal | None:
        """Take over the decision of the sink's home, None: the batch is done; older decisions are ignored."""
        sink, wanted = self._sinks.get(batch.sink), frozenset(parts or ())
        if sink is not None and sink.home != batch.home:
            return not_ours(batch, sink, self._group)
        if sink is not None and batch.number < sink.batch:
            return None
        if sink is not None and batch.number == sink.batch:
            if parts is None:
                self.done(batch)
            if sink.parts is None or sink.parts == wanted:
                return None
            remark = f"batch {batch.number} of sink {batch.sink} was decided otherwise; ask its home {sink.home}"
            return Refusal(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, remark)
        refused = why_not(batch, wanted) or self._room(batch.sink, now_ms)
        if refused is not None:
            return refused
        learned = self._decide(batch, wanted, now_ms)
        learned.number = 0
        if parts is None:
            learned.parts = None
        self.counts.learned += 1
        return None

    def abort(
        self, batch: Batch, parts: Iterable[str], now_ms: int, *, is_learned: bool = False
    ) -> Refusal | None:
        """Record that these parts are never committed, unless the batch is decided; return why not, if refused."""
        sink, unwanted = self._sinks.get(batch.sink), frozenset(parts)
        if sink is not None and batch.number <= sink.batch:
            return None
        refused = why_not(batch, unwanted) or self._room(batch.sink, now_ms)
        fresh = unwanted if sink is None else {part for part in unwanted if (batch.number, part) not in sink.aborted}
        if refused is None and fresh and not self._make_room(len(fresh), now_ms):
            remark = f"{NAMES_MAX} names of parts are kept, which is the limit; their halves stay open for now"
            refused = Refusal(ResponseCode.SYSTEM_BUSY, remark)
        if refused is not None:
            self.counts.refused += 1
            return refused
        sink = self._sinks.setdefault(batch.sink, Sink(batch.home, is_passing=batch.is_passing))
        if fresh:
            sink.aborted.update(dict.fromkeys(((batch.number, part) for part in sorted(fresh)), now_ms))
            sink.decided_ms = now_ms
            self.counts.aborted += len(fresh)
            self._touch(batch.sink)
            if is_learned:
                sink.number = 0
        return None

    def forget(self, name: str) -> bool:
        """Delete the row of a sink whose name is not used again; return False when it is not known."""
        if self._sinks.pop(name, None) is None:
            return False
        self._touch(name)
        return True

    def done(self, batch: Batch) -> None:
        """Record that all halves of this batch have ended; ignored for any batch but the newest."""
        sink = self._sinks.get(batch.sink)
        if sink is not None and sink.batch == batch.number and sink.parts is not None:
            sink.parts, sink.groups = None, frozenset()
            self.counts.done += 1
            is_learned = not sink.number
            self._touch(batch.sink)
            if is_learned:
                sink.number = 0

    def expire(self, now_ms: int) -> None:
        """Delete sinks that were for one batch only, a day after they were done."""
        old = now_ms - PASSING_KEPT_MS
        for name, sink in list(self._sinks.items()):
            if sink.is_passing and sink.is_done and sink.decided_ms < old:
                del self._sinks[name]
                self._touch(name)

    def _decide(self, batch: Batch, parts: frozenset[str], now_ms: int) -> Sink:
        before = self._sinks.get(batch.sink)
        kept = {} if before is None else {at: when for at, when in before.aborted.items() if at[0] > batch.number}
        decided = Sink(batch.home, batch.number, parts, frozenset(), kept, now_ms, batch.is_passing)
        self._sinks[batch.sink] = decided
        self._touch(batch.sink)
        return decided

    def _room(self, name: str, now_ms: int) -> Refusal | None:
        if name in self._sinks or len(self._sinks) < SINKS_MAX:
            return None
        self.expire(now_ms)
        if len(self._sinks) < SINKS_MAX:
            return None
        oldest = self._oldest(now_ms)
        if oldest is not None:
            self.forget(oldest)
            return None
        limit = f"group {self._group} knows {SINKS_MAX} sinks, which is the limit, and none is old enough to make room"
        remark = f"{limit}; forget unused ones (gantry tx resolve --sink ID --forget)"
        return Refusal(ResponseCode.SYSTEM_BUSY, remark)

    def _oldest(self, now_ms: int) -> str | None:
        """Return the sink to remove from a full table: copies and passing ones first; None when none is old enough."""
        found: list[tuple[bool, int, str]] = []
        for name, sink in self._sinks.items():
            is_cheap = sink.home != self._group or (sink.is_passing and sink.is_done)
            age_ms = now_ms - sink.decided_ms
            if age_ms > YOUNG_MS and (is_cheap or (sink.is_done and age_ms > IDLE_MS)):
                found.append((not is_cheap, sink.decided_ms, name))
        return min(found)[2] if found else None

    def _make_room(self, count: int, now_ms: int) -> bool:
        """Remove names of old aborted parts if needed; return whether there is room for `count` more."""
        if self._names() + count <= NAMES_MAX:
            return True
        for name, sink in self._sinks.items():
            kept = {at: when for at, when in sink.aborted.items() if when > now_ms - ABORTED_KEPT_MS}
            if len(kept) < len(sink.aborted):
                sink.aborted = kept
                self._touch(name)
        return self._names() + count <= NAMES_MAX

    def _names(self) -> int:
        return sum(len(sink.parts or ()) + len(sink.groups) + len(sink.aborted) for sink in self._sinks.values())

    # The saved form, which slaves get as well

    def keys(self) -> list[str]:
        """The names of all sinks."""
        return list(self._sinks)

    def value(self, key: str) -> dict[str, object] | None:
        """Return a sink as it is saved and sent to slaves; None when it is not known."""
        sink = self._sinks.get(key)
        if sink is None:
            return None
        aborted: dict[str, int] = {f"{batch}/{part}": when for (batch, part), when in sink.aborted.items()}
        return {
            "home": sink.home,
            "batch": sink.batch,
            "parts": None if sink.parts is None else sorted(sink.parts),
            "groups": sorted(sink.groups),
            "aborted": aborted,
            "decidedMs": sink.decided_ms,
            "passing": sink.is_passing,
            "owner": sink.owner,
        }

    def follow(self, key: str, value: object) -> None:
        """Take over the master's row of a sink; None deletes it.  ValueError: neither."""
        if value is None:
            self._sinks.pop(key, None)
        else:
            self._sinks[key] = sink_of(value, key)
        self._touch(key)

    def _to_document(self) -> dict[str, object]:
        return {"sinks": {name: self.value(name) for name in self._sinks}}

    def _touch(self, name: str) -> None:
        self.number += 1
        self.file.is_changed = True
        sink = self._sinks.get(name)
        if sink is not None:
            sink.number = self.number
        if self.touched is not None:
            self.touched.add(name)

    def _read(self, document: documents.Document) -> None:
        sinks = documents.mapping(document, "sinks")
        for name in sinks:
            self._sinks[name] = sink_of(sinks[name], name)
        # Decisions of an earlier process take effect when every copy is known to have them.
        self.number = 1
        for sink in self._sinks.values():
            sink.number = 1
