"""Timer messages that are due by the steady clock and wait for a moment of the wall clock, which was set back.

The timer goes by the steady clock, because most of what it holds are durations.  That clock is never behind the wall
clock, and ahead of it only after the wall clock was set back.  In this time the few messages with a moment (a time that
their producer named) are put here when the timer has them due, and leave when the wall clock has reached it.

Memory: some 200 bytes for each message.
"""

from __future__ import annotations

from heapq import heappop, heappush

NEVER_MS = 1 << 62


class Moments:
    """Pending offsets of the timer topic by the moment of the wall clock.  Loop thread only."""

    def __init__(self) -> None:
        self.dues: dict[int, int] = {}  # by offset
        self._heap: list[tuple[int, int]] = []  # (due, offset), also of offsets that were removed

    def add(self, offset: int, due_ms: int) -> None:
        """Add an offset that is due at this moment."""
        self.dues[offset] = due_ms
        heappush(self._heap, (due_ms, offset))

    def has(self, offset: int, due_ms: int) -> bool:
        """Return whether this offset, due then, waits here."""
        return self.dues.get(offset) == due_ms

    def remove(self, offset: int) -> None:
        """Remove an offset that waits here."""
        del self.dues[offset]

    def first_ms(self) -> int:
        """Return the first moment; NEVER_MS when nothing waits."""
        while self._heap and self.dues.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER_MS

    def first_offset(self) -> int:
        """Return the lowest offset; NEVER_MS when nothing waits."""
        return min(self.dues, default=NEVER_MS)

    def below(self, offset: int) -> list[int]:
        """Return the offsets below this one, ascending."""
        return sorted([one for one in self.dues if one < offset])

    def take_due(self, wall_ms: int, count_max: int) -> list[tuple[int, int]]:
        """Take out offsets whose moment has come, with it, the earliest first; `add` puts back what stays pending."""
        taken: list[tuple[int, int]] = []
        while len(taken) < count_max and self.first_ms() <= wall_ms:
            due_ms, offset = heappop(self._heap)
            del self.dues[offset]
            taken.append((offset, due_ms))
        return taken
