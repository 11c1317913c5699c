"""The rules of checking back, without loop, clock or disk: open transactions, what to do with them, and positions.

`Book` is the state.  Every half and every op message is entered in the order of their queues, by the dispatcher while
the broker runs, and by a start that reads them again; the same records give the same book.

    a half with a new root      is open
    a half with a known root    is the place of that transaction from now on (it was put back, or armed again)
    an op                       ends transactions; a copy that comes behind the end of its transaction is dead

Two positions follow, from which a start reads again (and ops from its first half's place in the log, see `recovery`):

    half offset    everything before it is done: ended, or standing further back
    op offset      everything before it names only halves before the half offset

`decide` returns what an open half needs now: nothing, a check with its producers, or to be given up.  A half is not
checked before its immunity time (the message's own, or the broker's) is over, counted from its store time; its born
time is of the producer's clock, and no rule uses it.  An immune half is skipped in memory and not appended again.  A
half is given up when it was checked `checks_max` times without an answer, or when it is too old.  A check counts only
when it was written to a connection; while no producer of the group is connected, the half waits.  `must_move` returns
which halves are to be put back, so that the half offset moves on, and a start does not have to read more and more.

Halves of a sink's batches (`batches`) are never checked nor given up, however old: they end as `decisions` says, and
until then they stay open.

The cost of a pass depends only on the number of open halves: the book does not look at settled ones again.
Memory: about 0.5 KB per open half, 0.25 MB per million settled ones, 8 bytes per op between the op offset and the end.

Source of the rules: RocketMQ's `TransactionalMessageServiceImpl`; where they differ: `broker/docs/divergence.md`.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.leaves import openhalves
from gantry.transaction.batches import OpenParts, read_key
from gantry.transaction.oplog import Settled, TransactionState
from gantry.transaction.settlemap import SettleMap

if TYPE_CHECKING:
    from gantry.leaves.records import Entry

OpenHalf = openhalves.OpenHalf
_COMPACT_OPS = 1 << 16


@dataclass(frozen=True, slots=True)
class CheckPolicy:
    """Settings: when halves are checked, given up and put back."""

    immunity_ms: int = 6_000
    checks_max: int = 15  # 0: not bounded by their number
    age_max_ms: int = 72 * 3_600_000
    # What a start has to read again: this many settled halves behind the oldest open one, and more only where there
    # are many open ones, so that at most one half in eight is put back.
    settled_behind_max: int = 100_000
    settled_behind_factor: int = 8
    # And this much of the log for messages without their op, while halves are open: about 0.1 s.
    unmarked_bytes_max: int = 64 << 20


class CheckAction(enum.Enum):
    """What has to be done with an open half now."""

    WAIT = "wait"
    ASK = "ask"
    UNANSWERED = "unanswered"  # checked often enough: to be given up, if a producer of its group is connected
    GIVE_UP = "give up"
    JUDGE = "judge"  # a part of a batch: the sink's decision counts, and no producer is asked


def decide(half: OpenHalf, age_ms: int, rules: CheckPolicy) -> CheckAction:
    """Return what has to be done with the half; `age_ms` is the time that has passed since its `since_ms`."""
    if half.batch is not None:
        return CheckAction.JUDGE
    if age_ms <= immunity_of(half, rules):
        return CheckAction.WAIT
    if age_ms > rules.age_max_ms:
        return CheckAction.GIVE_UP
    if rules.checks_max and half.checks >= rules.checks_max:
        return CheckAction.UNANSWERED
    return CheckAction.ASK


def immunity_of(half: OpenHalf, rules: CheckPolicy) -> int:
    """Return the immunity time of the half, in ms from its store time."""
    return rules.immunity_ms if half.immunity_ms is None else min(half.immunity_ms, rules.age_max_ms)


class Book:
    """All open transactions of a broker, and how far its half and op queues are done."""

    def __init__(self) -> None:
        self.map = SettleMap()
        self.open: dict[int, OpenHalf] = {}  # by its present queue offset, ascending
        self.topics: dict[str, int] = {}  # open ones by real topic
        self.parts = OpenParts()  # those that belong to batches of sinks
        self.half_offset = 0
        self.half_end = 0
        self._moved: dict[int, OpenHalf] = {}  # by root: those that have been put back
        self._op_offset = 0
        self._op_ends: array[int] = array("q")  # per op from _op_offset on: the last half offset that it names
        self._ops_done = 0

    def begin(self, half_offset: int, op_offset: int) -> None:
        """Start at positions that were saved, with nothing known."""
        self.__init__()  # type: ignore[misc]
        self.map = SettleMap(half_offset)
        self.half_offset = self.half_end = half_offset
        self._op_offset = op_offset

    @property
    def op_offset(self) -> int:
        """Return the op-queue offset before which all ops name only halves before the half offset."""
        return self._op_offset + self._ops_done

    @property
    def op_end(self) -> int:
        """The queue offset that the next op has."""
        return self._op_offset + len(self._op_ends)

    def find(self, root: int) -> OpenHalf | None:
        """The open transaction with this root."""
        half = self.open.get(root)
        if half is not None and half.root == root:
            return half
        return self._moved.get(root)

    def outcome(self, root: int) -> TransactionState | None:
        """Return how a transaction ended, or OPEN; None when this has to be looked up in the log."""
        return TransactionState.OPEN if self.find(root) is not None else self.map.get(root)

    def add_half(self, half: OpenHalf, is_rearmed: bool) -> None:
        """Enter the next record of the half queue."""
        offset, root = half.current, half.root
        is_next = offset == self.half_end
        self.half_end = max(self.half_end, offset + 1)
        self.map.grow(offset + 1)
        if root != offset:
            outcome = self.map.get(root)
            is_dead = outcome in (TransactionState.COMMITTED, TransactionState.ROLLED_BACK)
            if is_dead or (outcome is TransactionState.GIVEN_UP and not is_rearmed):
                self._advance()
                return
            if outcome is TransactionState.GIVEN_UP:
                self.map.put(root, TransactionState.OPEN)
            before = self.find(root)
            if before is not None:
                half.checks = max(half.checks, 0 if is_rearmed else before.checks)
                self._remove(before)
            self._moved[root] = half
        self.open[offset] = half
        if half.batch_text:
            key, half.batch_text = read_key(half.batch_text), ""
            half.batch = None if key is None else self.parts.add(key, root, half.since_ms)
        self.topics[half.topic] = self.topics.get(half.topic, 0) + 1
        if root != offset or not is_next:
            self._advance()  # another open half at the end moves no position

    def add_halves(self, entries: Sequence[Entry], at: int) -> tuple[list[OpenHalf], list[tuple[str, str]]]:
        """Enter records of the half queue from entries[at] on, up to one that needs `add_half`; return them, and their
        groups and topics.
        """
        entered, pairs = openhalves.enter(entries, at, self.open, self.topics, self.half_end)
        self.half_end += len(entered)
        self.map.grow(self.half_end)
        return entered, pairs

    def skip_half(self, offset: int) -> None:
        """Skip an offset of the half queue whose record cannot be read."""
        self.half_end = max(self.half_end, offset + 1)
        self.map.grow(offset + 1)
        self._advance()

    def add_op(self, op_offset: int, settled: Sequence[Settled]) -> None:
        """Enter the next record of the op queue."""
        last = -1
        for root, outcome, copies in settled:
            half = self.find(root)
            if half is not None:
                self._remove(half)
            self.map.put(root, outcome)
            last = max(last, root, *copies) if copies else max(last, root)
        missing = op_offset - self.op_end
        if missing >= 0:
            if missing:
                self._op_ends.extend([-1] * missing)
            self._op_ends.append(last)
        self._advance()

    def add_ops(self, entries: Sequence[Entry], at: int) -> list[int]:
        """Enter records of the op queue from entries[at] on, up to one that needs `add_op`; return the roots."""
        outcomes = self.map.bits, self.map.base
        roots = openhalves.close(entries, at, self.open, self.topics, outcomes, self.op_end)
        if roots:
            self._op_ends.extend(roots)
            self._advance()
        return roots

    def root_at(self, offset: int) -> int:
        """The root of the transaction that stands at a half-queue offset; the offset itself for a done one."""
        half = self.open.get(offset)
        return offset if half is None else half.root

    def oldest(self) -> OpenHalf | None:
        """The open half that holds the half offset."""
        return self.open.get(self.half_offset)

    def must_move(
        self, rules: CheckPolicy, log_limit: int, now_ms: int = 0, unmovable: Container[int] = ()
    ) -> Iterator[OpenHalf]:
        """Return the halves to put back now: those below `log_limit` (their segment is about to be removed), and those
        with too many settled ones behind them.  A half of a batch is not put back again within its immunity time.

        unmovable: roots of those that cannot be put back; they are passed over.
        """
        open_count = len(self.open)
        limit = max(rules.settled_behind_max, rules.settled_behind_factor * open_count)
        for number, half in enumerate(self.open.values()):
            settled_behind = self.half_end - half.current - (open_count - number)
            is_resting = half.batch is not None and 0 <= now_ms - half.placed_ms <= immunity_of(half, rules)
            if half.log_offset >= log_limit and (settled_behind <= limit or is_resting):
                break
            if half.root not in unmovable:
                yield half

    def _remove(self, half: OpenHalf) -> None:
        del self.open[half.current]
        self._moved.pop(half.root, None)
        if half.batch is not None:
            self.parts.remove(half.batch, half.root)
        left = self.topics[half.topic] - 1
        if left:
            self.topics[half.topic] = left
        else:
            del self.topics[half.topic]

    def _advance(self) -> None:
        self.half_offset = openhalves.following(self.open, self.half_offset, self.half_end)
        ends = self._op_ends
        done = openhalves.done(ends, self._ops_done, self.half_offset)
        if done >= _COMPACT_OPS:
            self._op_offset += done
            del ends[:done]
            done = 0
        self._ops_done = done
