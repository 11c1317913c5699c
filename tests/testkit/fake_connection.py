"""A connection without a socket: it keeps what was written to it, decoded again on demand.

It has the attributes and methods of `gantry.transport.connection.Connection` that handlers use.  Nothing is gathered:
what a handler writes is there at once, in order; only that somebody wants it gathered is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantry.leaves import frames
from gantry.wire.command import Request
from testkit.requests import end_as_command

Chunk = bytes | bytearray | memoryview


class FakeConnection:
    """Records output; a test plays the peer by looking at it and by calling `close`."""

    def __init__(self, peer: str = "10.0.0.1:4711") -> None:
        self.peer = peer
        self.born_host = bytes([10, 0, 0, 1, 0, 0, 0x12, 0x67])
        self.local_host = bytes([10, 0, 0, 9, 0, 0, 0x2A, 0x9F])
        self.batch_bytes = 100
        self.closed = False
        self.close_reason = ""
        self.is_writable = True
        self.closed_listeners: list[Callable[[FakeConnection], None]] = []
        self.output = bytearray()
        self.chunks: list[Chunk] = []
        self.pauses: set[str] = set()
        self.is_corked = False
        self.corks = 0
        self.has_time = True
        self.postponed: list[Request] = []
        self._read = 0

    def pause_reading(self, who: str) -> None:
        """Remember who wants nothing to be read."""
        self.pauses.add(who)

    def resume_reading(self, who: str) -> None:
        """Forget it."""
        self.pauses.discard(who)

    def must_wait(self) -> bool:
        """Whether further requests of a batch have to wait."""
        return not (self.has_time and self.is_writable)

    @property
    def has_postponed(self) -> bool:
        """Whether some wait."""
        return bool(self.postponed)

    def postpone(self, requests: list[Request]) -> None:
        """Keep them."""
        self.postponed += requests

    def write(self, data: Chunk) -> None:
        """Keep a copy, and the piece itself for tests that ask whether it was copied."""
        if not self.closed:
            self.output += data
            self.chunks.append(data)

    def writelines(self, chunks: Sequence[Chunk]) -> None:
        """Keep all pieces."""
        for chunk in chunks:
            self.write(chunk)

    def cork(self) -> bool:
        """Remember it."""
        if self.closed or self.is_corked:
            return False
        self.is_corked = True
        self.corks += 1
        return True

    def uncork(self) -> None:
        """The end of it."""
        assert self.is_corked, "nobody gathers"
        self.is_corked = False

    def send_oneway(self, command: frames.Command) -> None:
        """Encode as the real one does."""
        command.flag |= 2
        self.write(frames.encode(command))

    def close(self, reason: str) -> None:
        """Close and tell the listeners, once."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        listeners, self.closed_listeners = self.closed_listeners, []
        for listener in listeners:
            listener(self)

    def abort(self, reason: str) -> None:
        """Be gone at once."""
        self.close(reason)

    def take(self) -> list[frames.Command]:
        """The commands written since the last call; each came as a whole frame."""
        used, commands = frames.decode(self.output, self._read, len(self.output))
        assert used == len(self.output), "a handler wrote a part of a frame"
        self._read = used
        found = [end_as_command(one) if isinstance(one, frames.End) else one for one in commands]
        return [command for command in found if isinstance(command, frames.Command)]
