"""A proxy between clients and a broker that knows requests by their codes, and does something at one of them.

    with FrameProxy(broker, Cut(24004, "answered", 2, kill)) as proxy:

`before`: when the request has come and before the broker gets it; `answered`: when the broker has answered and before
the client hears it.  Then `act` is called, and the connection ends: the request, or its answer, is lost.  The broker
has to advertise the proxy's host (`network.advertise`); the port is the same.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from testkit.patience import HANG_S

HOST = "127.0.0.2"
_PIECE = 1 << 18


def nothing() -> None:
    """Only lose it."""


@dataclass(frozen=True)
class Cut:
    """At the `nth` request of this code from now on."""

    code: int
    when: str  # "before" or "answered"
    nth: int = 1
    act: Callable[[], None] = nothing
    marked: bytes = b""  # only requests that have this in their frame


class FrameProxy:
    """`cut` is what is waited for now, None when it has happened; `happened` counts."""

    def __init__(self, broker: tuple[str, int], host: str = HOST) -> None:
        self.cut: Cut | None = None
        self.happened = 0
        self._broker = broker
        self._lock = threading.Lock()
        self._seen = 0
        self._listener = socket.create_server((host, broker[1]))
        self._sockets: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._take)]
        self._threads[0].start()

    def wait_for(self, cut: Cut | None) -> None:
        """From now on."""
        with self._lock:
            self.cut, self._seen = cut, 0

    def __enter__(self) -> FrameProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._listener)
        with self._lock:
            open_now = list(self._sockets)
        for one in open_now:
            self._end(one)
        for thread in self._threads:
            thread.join(HANG_S)
            assert not thread.is_alive()

    def _end(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()

    def _take(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._broker, HANG_S)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._sockets |= {client, server}
        awaited: dict[int, Cut] = {}
        back = threading.Thread(target=self._answer, args=(server, client, awaited))
        back.start()
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                cut = self._match(frame)
                if cut is not None and cut.when == "before":
                    self._happen(cut)
                    break
                if cut is not None:
                    awaited[_numbers(frame)[1]] = cut
                server.sendall(frame)
        self._end(server)
        self._end(client)
        back.join(HANG_S)
        with self._lock:
            self._sockets -= {client, server}

    def _answer(self, server: socket.socket, client: socket.socket, awaited: dict[int, Cut]) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(server):
                cut = awaited.pop(_numbers(frame)[1], None) if awaited else None
                if cut is not None:
                    self._happen(cut)
                    break
                client.sendall(frame)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _happen(self, cut: Cut) -> None:
        with self._lock:
            self.happened += 1
        cut.act()

    def _match(self, frame: bytes) -> Cut | None:
        with self._lock:
            cut = self.cut
            if cut is None or cut.marked not in frame or _numbers(frame)[0] != cut.code:
                return None
            self._seen += 1
            if self._seen < cut.nth:
                return None
            self.cut = None
            return cut


def _frames(one: socket.socket) -> Iterator[bytes]:
    kept = bytearray()
    while piece := one.recv(_PIECE):
        kept += piece
        while len(kept) >= 4 and len(kept) >= (length := 4 + int.from_bytes(kept[:4], "big")):
            yield bytes(kept[:length])
            del kept[:length]


def _numbers(frame: bytes) -> tuple[int, int]:
    """Code and opaque, of a header in JSON or in binary."""
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    if frame[4]:
        return int.from_bytes(header[:2], "big"), int.from_bytes(header[5:9], "big")
    said = json.loads(header)
    return said["code"], said["opaque"]
