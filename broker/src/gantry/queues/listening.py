"""HTTP itself: aiohttp's parser and connections, with bounds around them.

    connected -> hearing -> calling -> idle -> hearing ...
                 whole head within HEAD_S      closed after IDLE_S
                 whole body within BODY_S; those of all connections together have BODIES_BYTES_MAX
                 the answer is read within ANSWER_S

aiohttp's low-level server is used, without its router: one handler for all requests.  A connection that begins a
request and does not finish it in time, or does not read the answer, is closed, so slow clients hold a bounded number of
connections for a bounded time.  A handler is cancelled when its client goes.  Whatever cannot be parsed is
answered with a document, like every other error, and the connection ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web

from gantry.transport.descriptors import limit
from gantry.transport.listening import listen
from gantry.transport.tasks import essential

CONNECTIONS_MAX = 20_000
HEAD_S = 10.0
IDLE_S = 300.0  # the Python SDK of MNS fails on a connection that was closed meanwhile, and does not repeat
BODY_S = 30.0
ANSWER_S = 60.0
BODIES_BYTES_MAX = 256 << 20  # of all calls under way
BODY_BYTES_MAX = 4 << 20  # sixteen messages of 64 KiB, each character of them as a reference
LINE_BYTES_MAX = 8190
HEADERS_MAX = 64
_BACKLOG = 512
_LINGER_S = 1.0  # after a refusal, for a body that nobody reads
_SWEEP_S = 2.0

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Unparsed = Callable[[int, str], web.Response]


class HttpListener:
    """Listens, and bounds what clients may do to it; `handle` answers a request whose head is whole."""

    def __init__(self, handle: Handle, unparsed: Unparsed) -> None:
        self.open: set[QueueConnection] = set()
        self.refused = 0
        self.slow = 0
        self.unparsed = unparsed
        self.most = min(CONNECTIONS_MAX, limit() * 3 // 4)  # the rest is for brokers, and for accepting
        self._handle = handle
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, fail: Callable[[str], None]) -> int:
        """Listen. Return the port; OSError when that cannot be.

        fail: called with the reason when slow clients will not be closed any more.
        """
        self._server = web.Server(self._handle, handler_cancellation=True)
        self._listener = await listen(self._connection, host, port, backlog=_BACKLOG)
        self._sweeping = essential(self._sweep(), "gantry-queues-sweep", fail)
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self, within_s: float) -> None:
        """Take no more connections, and wait for the calls under way; then close."""
        if self._listener is not None:
            self._listener.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(within_s)

    def _connection(self) -> QueueConnection:
        assert self._server is not None
        return QueueConnection(self, self._server)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            for connection in [one for one in self.open if one.has_been_slow(now)]:
                self.slow += 1
                connection.cut_off()


class QueueConnection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_answered_at", "_begun_at", "_bounds", "_is_calling")

    def __init__(self, bounds: HttpListener, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp: None turns it off, and is how it is documented
            keepalive_timeout=IDLE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=_LINGER_S,
            auto_decompress=False,
        )
        self._bounds = bounds
        self._begun_at: float | None = loop.time()  # of a request whose head is not whole; a new connection owes one
        self._answered_at = 0.0
        self._is_calling = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        bounds = self._bounds
        if len(bounds.open) >= bounds.most:
            bounds.refused += 1
            cast(asyncio.Transport, transport).abort()
        bounds.open.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._bounds.open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note when a request begins."""
        if self._begun_at is None:
            self._begun_at = asyncio.get_running_loop().time()
        super().data_received(data)

    def called(self) -> None:
        """Note that the head of a request is whole, and its call begins."""
        self._is_calling = True

    def answered(self) -> None:
        """Note that the call has ended; what came meanwhile is the next request."""
        self._is_calling = False
        self._begun_at = None
        self._answered_at = asyncio.get_running_loop().time()

    def has_been_slow(self, now: float) -> bool:
        """Return whether the client takes longer than it may, for the head of a request or for reading an answer."""
        if self._is_calling or self.transport is None:
            return False
        if self._begun_at is not None and self._begun_at < now - HEAD_S:
            return True
        return self._answered_at < now - ANSWER_S and cast(Any, self.transport).get_write_buffer_size() > 0

    def cut_off(self) -> None:
        """Close the connection, and drop what the client has not read: it may never do so."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed, and a failure of ours, with a document."""
        if status >= 500:
            self.log_exception("a call failed", exc_info=exc)
        found = self._bounds.unparsed(status, message or "")
        found.force_close()
        return found


class BodiesFullError(Exception):
    """All bodies together are too long."""


class BodyRoom:
    """Counts the bytes of bodies that are in memory; `most` of them are allowed at a time."""

    def __init__(self, most: int = BODIES_BYTES_MAX) -> None:
        self.most = most
        self.taken = 0


class BodyShare:
    """What one call has of it; `end` when the call ends."""

    __slots__ = ("_room", "_taken")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._taken = 0

    def take(self, count: int) -> None:
        """Take so many bytes more; BodiesFullError when there are too many."""
        self._room.taken += count
        self._taken += count
        if self._room.taken > self._room.most:
            raise BodiesFullError(f"the calls under way have bodies of more than {self._room.most} bytes")

    def end(self) -> None:
        """Give all back."""
        self._room.taken -= self._taken
        self._taken = 0


async def body_of(request: web.BaseRequest, expects: bool, share: BodyShare) -> bytes | None:
    """Return the body of a request, asking for it first when the client waits; None when it is longer than allowed.

    TimeoutError when it does not come in time, ConnectionError when the client goes before its end, BodiesFullError.
    """
    content: Any = request.content
    length = request.content_length
    if length is not None and length > BODY_BYTES_MAX:
        return None
    if content.is_eof():
        body = bytes(content.read_nowait(-1))
        share.take(len(body))
        return body
    if expects and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    count = 0
    async with asyncio.timeout(BODY_S):
        while not content.at_eof():
            part = await content.readany()
            count += len(part)
            if count > BODY_BYTES_MAX:
                return None
            share.take(len(part))
            parts.append(part)
    return b"".join(parts)
