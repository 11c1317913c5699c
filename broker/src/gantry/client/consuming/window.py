"""The window of one queue: a consumer's progress, and its unfinished messages.


A group's progress in a queue is one number, the offset to continue at.  Messages finish in any order, so the number is
the *smallest unfinished* offset.  Example: after a pull of 2101 to 2200, while only 2101 is unfinished, progress stays
at 2101; it becomes 2201 when that message finishes.  After a crash in between, 2101 to 2200 are delivered again; no
message is ever skipped.

The window also tells when to stop pulling: at too many messages, or too long a span between the first and the last
unfinished one.  With a long span one stuck message delays progress, and all later ones would be delivered again after a
crash.
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
        self.next_offset = offset  # of the next pull; set by this class only
        self._sizes: dict[int, int] = {}  # unfinished offset -> bytes
        self._order: deque[int] = deque()  # offsets in ascending order; finished ones are removed from the front

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        return len(self._sizes)

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be pulled until a message finishes."""
        return len(self._sizes) >= self.count_max or self.next_offset - self.progress > self.span_max

    @property
    def progress(self) -> int:
        """The offset to commit: the smallest unfinished one, or that of the next pull."""
        return self._order[0] if self._order else self.next_offset

    def put(self, offset: int, size: int) -> None:
        """Add a message; `size` in bytes."""
        assert offset >= self.next_offset, f"offset {offset} comes again, {self.next_offset} is next"
        self._sizes[offset] = size
        self._order.append(offset)
        self.next_offset = offset + 1
        self.bytes += size

    def reached(self, offset: int) -> None:
        """Note the next offset from a pull's answer; the offsets before it were filtered out by the broker."""
        self.next_offset = max(self.next_offset, offset)

    def finish(self, offset: int) -> int:
        """Note that a message is finished. Return its bytes, 0 when it is not in the window."""
        size = self._sizes.pop(offset, 0)
        self.bytes -= size
        order, sizes = self._order, self._sizes
        while order and order[0] not in sizes:
            order.popleft()
        return size

    def move(self, offset: int) -> None:
        """Continue at another offset, forwards or backwards, without the unfinished messages."""
        self._sizes.clear()
        self._order.clear()
        self.bytes = 0
        self.next_offset = offset
