"""One read buffer for all connections of a loop.

A loop handles what one wake-up brought, of one connection or of all that are read together (`gathered`),
before it reads again.  So all connections read into the same memory, and what a burst of 10 000 clients
costs is one buffer, not 10 000.  Only the beginning of a frame that has not arrived whole outlives the
wake-up: its bytes are the connection's own, and are counted (`partialbytes`).
"""

from __future__ import annotations

from gantry.transport.partialbytes import PartialBytes, PartialFrameOwner

READ_BUFFER_BYTES = 1 << 20  # one wake-up reads at most this much; 64 KiB costs 20 % more calls at full speed
PARTIAL_BYTES_MAX = 256 << 20  # sixteen frames of the largest size, all of them unfinished


class ReadBuffer:
    """Memory into which every connection of one loop reads, with the count of unfinished frames' bytes."""

    def __init__(self, size: int = READ_BUFFER_BYTES, partial_bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self.memory = bytearray(size)
        self.view = memoryview(self.memory)
        self._partial = PartialBytes(partial_bytes_max)

    @property
    def partial_bytes(self) -> int:
        """Bytes that connections keep of unfinished frames."""
        return self._partial.total

    def keep(self, holder: PartialFrameOwner, count: int) -> bool:
        """Record that the holder keeps `count` bytes of a frame from now on; False when there is no room for them."""
        return self._partial.keep(holder, count)
