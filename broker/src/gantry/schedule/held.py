"""Timer messages that are due by the steady clock and wait all the same, because the wall clock was set.

    a moment     that the producer named, until the wall clock, which was set back, has come to it
    a duration   that has not passed, because the wall clock was set forwards and the steady clock with it: until it has

The timer goes by due times of the steady clock.  The few messages that are not to be delivered then are put here when
the timer has them due.  Their due times stay what they are: a start, a cancel and an administrator go by them.

Memory: some 400 bytes for each message, however often it is put back.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

NEVER_MS = 1 << 62


class HeldUntil(NamedTuple):
    """When a held message is due, and until when it is held, in ms of the clock that it waits for."""

    due_ms: int
    until_ms: int


class HeldBack:
    """Pending offsets of the timer topic that wait for one clock.  Loop thread only."""

    def __init__(self) -> None:
        self.all: dict[int, HeldUntil] = {}  # by offset
        self._untils: list[tuple[int, int]] = []  # a heap of (until, offset), also of offsets that were removed
        self.dues: list[tuple[int, int]] = []  # the same of (due, offset), each once; empty: nothing waits
        self._in_dues: set[tuple[int, int]] = set()

    def add(self, offset: int, held: HeldUntil) -> None:
        """Hold an offset."""
        self.all[offset] = held
        heappush(self._untils, (held.until_ms, offset))
        due = held.due_ms, offset
        if due not in self._in_dues:  # else it is put back: its due time stays what it is
            self._in_dues.add(due)
            heappush(self.dues, due)

    def has(self, offset: int, due_ms: int) -> bool:
        """Return whether this offset, due then, waits here."""
        found = self.all.get(offset)
        return found is not None and found.due_ms == due_ms

    def remove(self, offset: int) -> None:
        """Remove an offset that waits here."""
        del self.all[offset]

    def first_ms(self) -> int:
        """Return the first time until which something is held; NEVER_MS when nothing waits."""
        heap, held = self._untils, self.all
        while heap and ((one := held.get(heap[0][1])) is None or one.until_ms != heap[0][0]):
            heappop(heap)
        return heap[0][0] if heap else NEVER_MS

    def first_due_ms(self) -> int:
        """Return the first due time; NEVER_MS when nothing waits."""
        heap, held = self.dues, self.all
        while heap and ((one := held.get(heap[0][1])) is None or one.due_ms != heap[0][0]):
            self._in_dues.remove(heappop(heap))
        return heap[0][0] if heap else NEVER_MS

    def first_offset(self) -> int:
        """Return the lowest offset; NEVER_MS when nothing waits."""
        return min(self.all, default=NEVER_MS)

    def below(self, offset: int) -> list[int]:
        """Return the offsets below this one, ascending."""
        return sorted([one for one in self.all if one < offset])

    def take_due(self, now_ms: int, count_max: int) -> list[tuple[int, HeldUntil]]:
        """Take out offsets whose time has come, with it, the earliest first; `add` puts back what stays pending."""
        taken: list[tuple[int, HeldUntil]] = []
        while len(taken) < count_max and self.first_ms() <= now_ms:
            _, offset = heappop(self._untils)
            taken.append((offset, self.all.pop(offset)))
        return taken
