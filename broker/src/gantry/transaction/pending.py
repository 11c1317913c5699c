"""Changes of transactions that are written and not dispatched yet, by root.

Between append and dispatch neither queues nor settle map show a change.  Each knows which record will: an op for an
end, a copy in the half queue for a move.  An end that comes while its transaction moves keeps the place that it moves
to, because its op has to name that place too.

What cannot be written yet (`repair`) has ended all the same: no record shows it until one is written.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantry.transaction.oplog import Outcome

_NEVER = 1 << 62


class _Change:
    __slots__ = ("copy", "outcome", "shown_at")

    def __init__(self, outcome: Outcome, shown_at: int, copy: int) -> None:
        self.outcome = outcome  # OPEN: the transaction moves
        self.shown_at = shown_at  # op-queue offset, or half-queue offset while it only moves
        self.copy = copy  # where it moves to, -1 if it does not


class Pending:
    """Loop thread only; as long as what is between two marks."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def __contains__(self, root: int) -> bool:
        return root in self._changes

    def outcome(self, root: int) -> Outcome | None:
        """How it will have ended; None when nothing is pending that ends it."""
        change = self._changes.get(root)
        return None if change is None or change.outcome is Outcome.OPEN else change.outcome

    def copy(self, root: int) -> int:
        """The half-queue offset that it is on the way to, -1 when it is on none."""
        change = self._changes.get(root)
        return -1 if change is None else change.copy

    def ends(self, root: int, outcome: Outcome, op: int = _NEVER) -> None:
        """Its last op, at this op-queue offset, is written; or never was."""
        self._changes[root] = _Change(outcome, op, self.copy(root))

    def moves(self, root: int, copy: int) -> None:
        """Its copy, at this half-queue offset, is written."""
        self._changes[root] = _Change(Outcome.OPEN, copy, copy)

    def forget(self, root: int) -> None:
        """What was written is dispatched already."""
        self._changes.pop(root, None)

    def shown(self, is_half: bool, end: int, roots: Iterable[int]) -> None:
        """The half queue, or the op queue, was dispatched up to `end`: what is pending there is in the book now."""
        for root in roots:
            change = self._changes.get(root)
            if change is not None and (change.outcome is Outcome.OPEN) == is_half and change.shown_at < end:
                del self._changes[root]
