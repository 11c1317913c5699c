"""A proxy between a client and PostgreSQL that breaks the connection at a COMMIT.

    "after"    the COMMIT reaches the server and is carried out; its answer is lost
    "before"   the COMMIT is lost

For the client both look the same: the connection broke while it waited, and the outcome is unknown.  A COMMIT is
recognised as the simple query that libpq sends; its answer is complete with ReadyForQuery.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

_COMMIT = b"COMMIT\x00"
_PIECE = 1 << 16


class CommitProxy:
    """`cut(n)` says what happens to the n-th COMMIT that passes, from 1 on: "after", "before" or nothing."""

    def __init__(self, server_port: int, cut: Callable[[int], str]) -> None:
        self._server_port = server_port
        self._cut = cut
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.commits = 0
        self.cuts: list[str] = []
        self._threads = [threading.Thread(target=self._take)]
        self._threads[0].start()

    def close(self) -> None:
        """No new connections, and every thread gone; clients have left before."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

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
        with client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            is_mute, was_answered = threading.Event(), threading.Event()

            def answer() -> None:
                with contextlib.suppress(OSError):
                    while piece := server.recv(_PIECE):
                        if is_mute.is_set():
                            was_answered.set()
                        else:
                            client.sendall(piece)
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

            back = threading.Thread(target=answer)
            back.start()
            with contextlib.suppress(OSError):
                while piece := client.recv(_PIECE):
                    what = self._what(piece)
                    if what == "before":
                        break
                    if what == "after":
                        is_mute.set()
                    server.sendall(piece)
                    if what == "after":
                        assert was_answered.wait(60)
                        break
            for one in (server, client):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            back.join(60)

    def _what(self, piece: bytes) -> str:
        if _COMMIT not in piece:
            return ""
        with self._lock:
            self.commits += 1
            what = self._cut(self.commits)
            self.cuts += [what] if what else []
        return what


@contextlib.contextmanager
def cutting(server_port: int, cut: Callable[[int], str]) -> Iterator[CommitProxy]:
    """A proxy for the length of the block."""
    proxy = CommitProxy(server_port, cut)
    try:
        yield proxy
    finally:
        proxy.close()
