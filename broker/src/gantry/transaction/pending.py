"""Changes of transactions that are written but not dispatched yet, by root.

Between append and dispatch a change is neither in queues nor in the settle map.  Each change stores which record will
show it: an op for an end, a copy in the half queue for a move.  An end that comes while its transaction moves keeps the
new place, because its op has to name that place too.

Ends whose ops cannot be written yet (`repair`) are pending until the ops are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gantry.transaction.half import SYS_COMMIT, SYS_ROLLBACK
from gantry.transaction.oplog import TransactionState

if TYPE_CHECKING:
    from gantry.leaves.frames import End, Send
    from gantry.transaction.checker import OpenHalf

_NEVER = 1 << 62
_OUTCOMES = {SYS_COMMIT: TransactionState.COMMITTED, SYS_ROLLBACK: TransactionState.ROLLED_BACK}


Change = tuple[TransactionState, int, int]
"""The outcome, OPEN while the transaction moves; the offset in the op queue that shows it, in the half queue while it
only moves; where it moves to, -1 if it does not."""


class Pending:
    """The pending changes; bounded by what is written and not dispatched.  Loop thread only."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}  # by root

    def __len__(self) -> int:
        return len(self.changes)

    def __contains__(self, root: int) -> bool:
        return root in self.changes

    def outcome(self, root: int) -> TransactionState | None:
        """Return the outcome of a pending end; None when no end is pending."""
        change = self.changes.get(root)
        return None if change is None or change[0] is TransactionState.OPEN else change[0]

    def copy(self, root: int) -> int:
        """Return the half-queue offset to which the transaction moves, -1 when it does not move."""
        change = self.changes.get(root)
        return -1 if change is None else change[2]

    def ends(self, root: int, outcome: TransactionState, op: int = _NEVER) -> None:
        """Record that the last op of an end is written, at this op-queue offset; _NEVER: it is not written yet."""
        self.changes[root] = outcome, op, self.copy(root)

    def end_all(self, ends: Sequence[End], halves: Sequence[OpenHalf], ops: Sequence[Send], dispatched: int) -> None:
        """Record ends of transactions without a pending change, as far as their ops are not dispatched yet."""
        self.changes.update(
            [
                (half.root, (_OUTCOMES[end.kind], op.queue_offset, -1))
                for end, half, op in zip(ends, halves, ops, strict=True)
                if op.log_offset >= dispatched
            ]
        )

    def moves(self, root: int, copy: int) -> None:
        """Record that the copy of a moving transaction is written, at this half-queue offset."""
        self.changes[root] = TransactionState.OPEN, copy, copy

    def forget(self, root: int) -> None:
        """Forget a change that is dispatched already."""
        self.changes.pop(root, None)

    def shown(self, is_half: bool, end: int, roots: Iterable[int]) -> None:
        """Forget changes of these roots that the book has now: the half or op queue was dispatched up to `end`."""
        if not self.changes:
            return
        for root in roots:
            change = self.changes.get(root)
            if change is not None and (change[0] is TransactionState.OPEN) == is_half and change[1] < end:
                del self.changes[root]
