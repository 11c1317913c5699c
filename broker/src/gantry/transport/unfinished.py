"""The beginning of one connection's frame that has not arrived whole.

A short one is copied in front of the next read; a long one, or one that the read buffer could not hold, gets memory of
its own, and reads go straight into it.  That memory grows to twice of what came: what a peer claims costs nothing
before it comes.  The bytes are counted in the budget of all connections (`readbuffer`).
"""

from __future__ import annotations

from gantry.leaves import frames
from gantry.transport.partialbytes import PartialFrameOwner
from gantry.transport.readbuffer import ReadBuffer
from gantry.wire.command import Request

_KEEP_BYTES_MAX = 64 << 10  # a longer beginning of a frame gets a buffer of its own instead of being copied each time


class UnfinishedFrame:
    """What one connection keeps between two reads; belongs to `owner`, whose name it has in the budget."""

    def __init__(self, buffer: ReadBuffer, owner: PartialFrameOwner) -> None:
        self.no_room = ""  # why the beginning could not be kept: the end of the connection
        self._buffer = buffer
        self._owner = owner
        self._rest = b""  # short: copied in front of the next read
        self._large: bytearray | None = None  # long: reads go straight into it
        self._filled = 0
        self._need = 0  # bytes of the whole frame

    @property
    def is_begun(self) -> bool:
        """Whether bytes are kept: the next read has to go into `room`."""
        return bool(self._rest) or self._large is not None

    def room(self) -> memoryview:
        """Where the next bytes go: behind the beginning of their frame."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        view, rest = self._buffer.view, self._rest
        if not rest:
            return view
        view[: len(rest)] = rest
        return view[len(rest) :]

    def take(self, nbytes: int) -> tuple[int, list[Request]]:
        """Decode what is whole after a read of `nbytes` into `room`; return its bytes, about, and the requests.

        RemoteProtocolError for bytes that are no frames.
        """
        if self._large is not None:
            return self._take_large(self._large, nbytes)
        end = len(self._rest) + nbytes
        used, requests = frames.decode(self._buffer.memory, 0, end)
        self.begin(used, end)
        return end, requests

    def begin(self, used: int, end: int) -> None:
        """Keep the bytes of the read buffer from `used` to `end` instead of what was kept; see `no_room`."""
        count = end - used
        if not count:
            if self._rest:
                self.forget()
            return
        if not self._keep(count):
            return  # whole frames that came before it count
        self._rest = bytes(self._buffer.view[used:end])
        if count >= 4:
            need = frames.frame_length(self._buffer.memory, used, end)
            if need is not None and (count > _KEEP_BYTES_MAX or need > len(self._buffer.memory)):
                rest, self._rest = self._rest, b""
                self._filled, self._need = count, need
                self._grow(rest)

    def forget(self) -> None:
        """Keep nothing any more."""
        self._buffer.keep(self._owner, 0)
        self._rest = b""
        self._large = None

    def _grow(self, content: bytes | bytearray) -> None:
        capacity = min(self._need, max(4 * _KEEP_BYTES_MAX, 2 * len(content)))
        if not self._keep(capacity):
            return
        # Not resized in place: the transport still holds a view of the old one.
        self._large = bytearray(capacity)
        self._large[: len(content)] = content

    def _take_large(self, large: bytearray, nbytes: int) -> tuple[int, list[Request]]:
        self._filled += nbytes
        if self._filled < self._need:
            if self._filled == len(large):
                self._grow(large)
            return 0, []
        self.forget()
        _, requests = frames.decode(large, 0, len(large))
        return len(large), requests

    def _keep(self, count: int) -> bool:
        """Count the bytes that are kept, now `count`; false when there is no room for them."""
        if self._buffer.keep(self._owner, count):
            return True
        self.no_room = f"{count} bytes of an unfinished frame over the budget of all connections"
        self.forget()
        return False
