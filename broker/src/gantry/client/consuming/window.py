"""How far a consumer has come in one queue, and how much of it is in work.

A group's progress in a queue is one number, the offset to continue at.  Messages end in any order, so
the number is the *smallest unfinished* offset: pulled 2101 to 2200 and only 2101 unfinished, progress
stays at 2101 and jumps to 2201 when it ends.  A crash in between brings 2101 to 2200 again; nothing is
ever skipped.

The window also says when to stop pulling: too many messages, too many bytes, or too long a span between
the first and the last unfinished one (then one stuck message holds up progress, and everything behind it
would come again after a crash).
"""

from __future__ import annotations

from collections import deque

COUNT_MAX = 1000  # RocketMQ's pullThresholdForQueue
SPAN_MAX = 2000  # RocketMQ's consumeConcurrentlyMaxSpan


class Window:
    """The unfinished messages of one queue; offsets are put in ascending order."""

    def __init__(self, offset: int, count_max: int = COUNT_MAX, span_max: int = SPAN_MAX) -> None:
        self.count_max = count_max
        self.span_max = span_max
        self.bytes = 0  # of all unfinished messages
        self._next = offset  # what to pull next
        self._sizes: dict[int, int] = {}  # unfinished offset -> bytes
        self._order: deque[int] = deque()  # put offsets, ascending; finished ones leave when they come first

    @property
    def next_offset(self) -> int:
        """Where the next pull begins."""
        return self._next

    @property
    def count(self) -> int:
        """Unfinished messages."""
        return len(self._sizes)

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be pulled until something ends."""
        return len(self._sizes) >= self.count_max or self._next - self.progress > self.span_max

    @property
    def progress(self) -> int:
        """The offset to commit: the smallest unfinished one, or where the next pull begins."""
        return self._order[0] if self._order else self._next

    def put(self, offset: int, size: int) -> None:
        """A message came."""
        assert offset >= self._next, f"offset {offset} comes again, {self._next} is next"
        self._sizes[offset] = size
        self._order.append(offset)
        self._next = offset + 1
        self.bytes += size

    def reached(self, offset: int) -> None:
        """A pull reply said where to go on; what lies between was filtered out on the broker."""
        self._next = max(self._next, offset)

    def finish(self, offset: int) -> int:
        """A message has ended; gives back its bytes, 0 when it is not or no longer in the window."""
        size = self._sizes.pop(offset, 0)
        self.bytes -= size
        while self._order and self._order[0] not in self._sizes:
            self._order.popleft()
        return size

    def move(self, offset: int) -> None:
        """Continue at another offset, forwards or backwards; whatever was in work no longer counts."""
        self._sizes.clear()
        self._order.clear()
        self.bytes = 0
        self._next = offset
