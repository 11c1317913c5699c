"""Whether a history of one register is linearizable: every answer fits one order of the operations that time allows.

An operation takes effect once, at a moment between its begin and its end.  One whose outcome is unknown has no end: it
may take effect at any later moment, or never.  The search goes through the orders as Wing and Gong, and Lowe, do: next
is any operation that began before the first end of those that are left; what was done, with the value that it led to,
is looked at once.  Histories are of one key, some dozens of operations with few of them at a time, so that a search of
our own is smaller than a checker in another language (docs/adr/simulation-histories.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEVER = float("inf")
Value = str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One write or read; ended_s: NEVER when nobody knows what became of it."""

    who: str
    begun_s: float
    ended_s: float
    is_write: bool
    value: Value  # that was written, or seen

    def __str__(self) -> str:
        end = "no answer" if self.ended_s == NEVER else f"{self.ended_s:.3f}"
        return f"{self.begun_s:.3f} to {end}: {self.who} {'wrote' if self.is_write else 'read'} {self.value}"


def is_linearizable(history: Sequence[Operation], first: Value = None) -> bool:
    """Whether some order explains every answer, beginning with the value `first`."""
    ordered = _of_use(history)
    done = sum(1 << number for number, one in enumerate(ordered) if one.ended_s < NEVER)
    waiting: list[tuple[int, Value]] = [(0, first)]
    looked_at = set(waiting)
    while waiting:
        taken, value = waiting.pop()
        if taken & done == done:
            return True
        for number, one in _next(ordered, taken):
            if one.is_write or one.value == value:
                state = taken | 1 << number, one.value
                if state not in looked_at:
                    looked_at.add(state)
                    waiting.append(state)
    return False


def _of_use(history: Sequence[Operation]) -> list[Operation]:
    """In order of their begin.  A write without an end whose value nobody saw explains nothing."""
    seen = {one.value for one in history if not one.is_write}
    kept = [one for one in history if one.ended_s < NEVER or (one.is_write and one.value in seen)]
    return sorted(kept, key=lambda one: one.begun_s)


def _next(ordered: list[Operation], taken: int) -> list[tuple[int, Operation]]:
    """Those that may be next: nothing that is left ended before they began."""
    left = [(number, one) for number, one in enumerate(ordered) if not taken >> number & 1]
    first_end_s = min((one.ended_s for _, one in left), default=NEVER)
    return [(number, one) for number, one in left if one.begun_s <= first_end_s]


def shortest_wrong(history: Sequence[Operation], first: Value = None) -> list[Operation]:
    """The history up to the answer that nothing explains any more; empty when there is none."""
    ends = sorted({one.ended_s for one in history if one.ended_s < NEVER})
    for end_s in ends:
        until = [one if one.ended_s <= end_s else _open(one) for one in history if one.begun_s <= end_s]
        known = [one for one in until if one is not None]
        if not is_linearizable(known, first):
            return known
    return []


def _open(one: Operation) -> Operation | None:
    """As it was before its end."""
    return Operation(one.who, one.begun_s, NEVER, True, one.value) if one.is_write else None
