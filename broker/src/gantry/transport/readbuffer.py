"""One read buffer for all connections of a loop, and the budget of what they may keep.

A loop handles what one wake-up brought, of one connection or of all that are read together (`gathered`),
before it reads again.  So all connections read into the same memory, and what a burst of 10 000 clients
costs is one buffer, not 10 000.  Only the beginning of a frame that has not arrived whole outlives the
wake-up: its bytes are the connection's own and are counted here.  When all connections together would
keep more than the budget, the one that keeps most is closed; of equals, the one that began first.  So of
sixteen peers that never finish their largest frames one after the other is closed, and a peer that sends
frames of usual size is not affected.
"""

from __future__ import annotations

from typing import Protocol

READ_BUFFER_BYTES = 1 << 20  # one wake-up reads at most this much; 64 KiB costs 20 % more calls at full speed
PARTIAL_BYTES_MAX = 256 << 20  # sixteen frames of the largest size, all of them unfinished


class PartialFrameOwner(Protocol):
    """A connection that keeps the beginning of an unfinished frame."""

    def give_way(self, reason: str) -> None:
        """Close the connection; when this returns, it keeps no bytes any more."""
        ...


class ReadBuffer:
    """Memory into which every connection of one loop reads, with the count of unfinished frames' bytes."""

    def __init__(self, size: int = READ_BUFFER_BYTES, partial_bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self.memory = bytearray(size)
        self.view = memoryview(self.memory)
        self.partial_bytes = 0
        self._partial_bytes_max = partial_bytes_max
        self._kept: dict[PartialFrameOwner, int] = {}  # in the order in which they began

    def keep(self, holder: PartialFrameOwner, count: int) -> bool:
        """Record that the holder keeps `count` bytes from now on; this replaces its former count.

        Over the budget, another holder that keeps at least as much is closed, so closing one is enough.  Return False
        and change nothing when this holder would keep most.
        """
        before = self._kept.get(holder, 0)
        if count > before and self.partial_bytes - before + count > self._partial_bytes_max:
            largest = max((one for one in self._kept if one is not holder), key=self._kept.__getitem__, default=None)
            if largest is None or self._kept[largest] < count:
                return False
            largest.give_way(f"{self._kept[largest]} bytes of an unfinished frame, the most of all over their budget")
            assert self.partial_bytes - before + count <= self._partial_bytes_max, "gave way and keeps something"
        self.partial_bytes += count - before
        if count:
            self._kept[holder] = count
        else:
            self._kept.pop(holder, None)
        return True
