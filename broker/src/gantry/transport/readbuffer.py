"""One read buffer for all connections of a loop, and the budget of what they may keep.

A loop handles one readable socket at a time, from `recv` to the end of the handler, so all connections
read into the same memory and what a burst of 10 000 clients costs is one buffer, not 10 000.  Only the
beginning of a frame that has not arrived whole outlives the wake-up: its bytes are the connection's own
and are counted here.  When all connections together would keep more than the budget, the one that asks
for more is the one that is closed; a frame is at most 16 MiB, so honest clients are far from it.
"""

from __future__ import annotations

READ_BUFFER_BYTES = 1 << 20  # one wake-up reads at most this much; 64 KiB costs 20 % more calls at full speed
PARTIAL_BYTES_MAX = 256 << 20  # sixteen frames of the largest size, all of them unfinished


class ReadBuffer:
    """Memory into which every connection of one loop reads, with the count of unfinished frames' bytes."""

    def __init__(self, size: int = READ_BUFFER_BYTES, partial_bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self.memory = bytearray(size)
        self.view = memoryview(self.memory)
        self.partial_bytes = 0
        self._partial_bytes_max = partial_bytes_max

    def reserve(self, count: int) -> bool:
        """Count `count` more bytes (fewer, when negative) as kept; False, and nothing counted, over the budget."""
        total = self.partial_bytes + count
        if count > 0 and total > self._partial_bytes_max:
            return False
        assert total >= 0, "more bytes given back than were ever kept"
        self.partial_bytes = total
        return True
