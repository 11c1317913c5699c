"""Changes of transactions that are written but not dispatched yet, by root.

Between append and dispatch a change is neither in queues nor in the settle map.  Each change stores which record will
show it: an op for an end, a copy in the half queue for a move.  An end that comes while its transaction moves keeps the
new place, because its op has to name that place too.

Ends whose ops cannot be written yet (`repair`) are pending until the ops are written.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantry.transaction.oplog import TransactionState

_NEVER = 1 << 62


class _Change:
    __slots__ = ("copy", "outcome", "shown_at")

    def __init__(self, outcome: TransactionState, shown_at: int, copy: int) -> None:
        self.outcome = outcome  # OPEN: the transaction moves
        self.shown_at = shown_at  # op-queue offset, or half-queue offset while it only moves
        self.copy = copy  # where it moves to, -1 if it does not


class Pending:
    """The pending changes; bounded by what is written and not dispatched.  Loop thread only."""

    def __init__(self) -> None:
        self.changes: dict[int, _Change] = {}  # by root

    def __len__(self) -> int:
        return len(self.changes)

    def __contains__(self, root: int) -> bool:
        return root in self.changes

    def outcome(self, root: int) -> TransactionState | None:
        """Return the outcome of a pending end; None when no end is pending."""
        change = self.changes.get(root)
        return None if change is None or change.outcome is TransactionState.OPEN else change.outcome

    def copy(self, root: int) -> int:
        """Return the half-queue offset to which the transaction moves, -1 when it does not move."""
        change = self.changes.get(root)
        return -1 if change is None else change.copy

    def ends(self, root: int, outcome: TransactionState, op: int = _NEVER) -> None:
        """Record that the last op of an end is written, at this op-queue offset; _NEVER: it is not written yet."""
        self.changes[root] = _Change(outcome, op, self.copy(root))

    def moves(self, root: int, copy: int) -> None:
        """Record that the copy of a moving transaction is written, at this half-queue offset."""
        self.changes[root] = _Change(TransactionState.OPEN, copy, copy)

    def forget(self, root: int) -> None:
        """Forget a change that is dispatched already."""
        self.changes.pop(root, None)

    def shown(self, is_half: bool, end: int, roots: Iterable[int]) -> None:
        """Forget changes of these roots that the book has now: the half or op queue was dispatched up to `end`."""
        if not self.changes:
            return
        for root in roots:
            change = self.changes.get(root)
            if change is not None and (change.outcome is TransactionState.OPEN) == is_half and change.shown_at < end:
                del self.changes[root]
