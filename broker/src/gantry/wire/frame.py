"""A peer's bytes as commands, whatever pieces they come in: the client's reading half, without any I/O.

    reader = FrameReader()
    for command in reader.feed(socket.recv(65536)): ...

Only the unfinished frame is kept.  A length that no frame may have is refused as soon as it is seen, so at most
FRAME_BYTES_MAX bytes are ever held.  After a RemoteProtocolError the reader is of no more use, like its connection.
"""

from __future__ import annotations

from gantry.errors import RemoteProtocolError
from gantry.leaves import frames


class FrameReader:
    """Turns chunks of bytes into whole commands, in order."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[frames.Command]:
        """The commands that these bytes complete; RemoteProtocolError when they cannot be commands for a client."""
        self._kept += data
        used, requests = frames.decode(self._kept, 0, len(self._kept))
        del self._kept[:used]
        commands = [request for request in requests if isinstance(request, frames.Command)]
        if len(commands) != len(requests):
            raise RemoteProtocolError("the server asked its client to store a message or to be pulled from")
        return commands

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._kept)
