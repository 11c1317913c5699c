"""A pipeline of requests on one plain socket, used by writer tasks.

A pipe belongs to one broker.  `put` sends a request and reads the answers that came; it waits only while `window`
requests are without one.  `answered` is called with the reply of each request, or with None when the connection ended
and the outcome is unknown.  There is no thread: `put` and `drain` do the reading.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from gantry.client.connections.blockingsession import is_readable
from gantry.errors import RemoteProtocolError
from gantry.leaves.frames import Command, encode
from gantry.transport.addresses import split_address
from gantry.wire.frame import FrameReader

T = TypeVar("T")

_CONNECT_S = 3.0
_READ_BYTES = 256 << 10


class Pipe(Generic[T]):
    """One socket; `answered` is called with what was put and its reply."""

    def __init__(
        self, address: str, window: int, patience_s: float, answered: Callable[[T, Command | None], None]
    ) -> None:
        self._address = address
        self._window = window
        self._patience_s = patience_s
        self._answered = answered
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0
        self._waiting: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, command: Command, token: T) -> None:
        """Send a request; OSError when there is no connection, and then nothing of it was sent."""
        if self._socket is None:
            self._open()
        while len(self._waiting) >= self._window:
            self._read(wait=True)
            if self._socket is None:
                self._open()
        self._opaque = command.opaque = (self._opaque + 1) & 0x7FFFFFFF
        self._waiting[self._opaque] = token
        assert self._socket is not None
        try:
            self._socket.sendall(encode(command))
        except OSError:
            self._lose()
            return
        self._read(wait=False)

    def wait(self) -> None:
        """Wait for one answer, if a request is under way."""
        if self._waiting:
            self._read(wait=True)

    def drain(self) -> None:
        """Wait for the answers of all requests."""
        while self._waiting:
            self._read(wait=True)

    def close(self) -> None:
        """Close the socket; unanswered requests get no answer any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> None:
        self._reader = FrameReader()
        self._socket = socket.create_connection(split_address(self._address), _CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self._patience_s)

    def _read(self, wait: bool) -> None:
        if self._socket is None:
            self._lose()
            return
        until = time.monotonic() + self._patience_s
        while True:
            left = max(0.0, until - time.monotonic()) if wait else 0.0
            try:
                if not is_readable(self._socket, left):
                    if wait:
                        self._lose()
                    return
                data = self._socket.recv(_READ_BYTES)
                found = self._reader.feed(data) if data else []
            except (OSError, RemoteProtocolError):
                self._lose()
                return
            if not data:
                self._lose()
                return
            answered = deque((reply, self._waiting.pop(reply.opaque)) for reply in found if self._is_awaited(reply))
            for reply, token in answered:
                self._answered(token, reply)
            if answered or not wait:
                return

    def _is_awaited(self, reply: Command) -> bool:
        return reply.is_response and reply.opaque in self._waiting

    def _lose(self) -> None:
        self.close()
        waiting, self._waiting = self._waiting, {}
        for token in waiting.values():
            self._answered(token, None)
