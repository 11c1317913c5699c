"""HTTP itself: aiohttp's parser and connections, with bounds around them.

    connected -> hearing -> calling -> idle -> hearing ...
                 whole head within HEAD_S      closed after IDLE_S
                 whole body within BODY_S
                 some of the answer is read within ANSWER_S

aiohttp's low-level server is used, without its router: one handler for all requests.  A connection that begins a
request and does not finish it in time, or does not read the answer, is closed, so slow clients hold a bounded number of
connections for a bounded time.  A handler is cancelled when its client goes.  Whatever cannot be parsed is
answered with a document, like every other error, and the connection ends.

What all clients use together is shared by host: connections, and with them calls that wait, since a connection has one
call at a time; bytes of heads that are not whole, of bodies, and of answers that are not read.  The library begins no
call before the client has read the answers before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import StreamReader, web

from gantry.transport.descriptors import limit
from gantry.transport.fairness import Owner, SharedPlaces
from gantry.transport.listening import listen
from gantry.transport.output import OutputBudget
from gantry.transport.partialbytes import PartialBytes
from gantry.transport.silence import OutputProgress, unsent_by_system
from gantry.transport.tasks import essential

CONNECTIONS_MAX = 20_000
HEAD_S = 10.0
IDLE_S = 300.0  # the Python SDK of MNS fails on a connection that was closed meanwhile, and does not repeat
BODY_S = 30.0
ANSWER_S = 60.0
HEAD_BYTES_MAX = 64 << 10  # what comes before its head is whole, or before the call under way is answered
HEADS_BYTES_MAX = 64 << 20  # of all connections
BODIES_BYTES_MAX = 256 << 20  # of all calls under way
OUTPUT_BYTES_MAX = 256 << 20  # of all answers that are not read
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
        self.places = SharedPlaces(self.most)
        self.heads = PartialBytes(HEADS_BYTES_MAX)
        self.output = OutputBudget(OUTPUT_BYTES_MAX, lambda call: asyncio.get_running_loop().call_soon(call))
        self._progress = OutputProgress[QueueConnection]()
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
            self.close_slow(loop.time())

    def close_slow(self, now: float) -> None:
        """Close the connections that take longer than they may."""
        unread = {one: one.unsent_bytes for one in self.open if one.has_unread(now)}
        for connection in self._progress.taken_since(unread):
            connection.reads_on(now)
        for connection in [one for one in self.open if one.has_been_slow(now)]:
            self.slow += 1
            connection.cut_off()


class QueueConnection(web.RequestHandler):
    """One connection."""

    __slots__ = (
        "_answered_at", "_begun_at", "_bounds", "_has_call", "_head_bytes", "_unread_body", "is_calling", "last_active",
        "peer",
    )

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
        self.peer = "?"  # "ip:port" of the client
        self.last_active = 0.0  # loop time of the last read
        self._bounds = bounds
        self._begun_at: float | None = loop.time()  # of a request whose head is not whole; a new connection owes one
        self._head_bytes = 0  # that came of it
        self._has_call = False  # the head of a request that is not answered is whole
        self._unread_body: StreamReader | None = None  # of a call that was answered before it had come
        self._answered_at = 0.0  # or when some of the answer was read
        self.is_calling = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many, or its host has its share."""
        bounds, peer = self._bounds, transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
        if bounds.places.take(self):
            bounds.open.add(self)
        else:
            bounds.refused += 1
            cast(asyncio.Transport, transport).abort()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        bounds = self._bounds
        if self in bounds.open:
            bounds.open.discard(self)
            bounds.places.give_back(self)
        bounds.heads.keep(self, 0)
        bounds.output.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note when a request begins, and what comes before its head is whole."""
        self.last_active = asyncio.get_running_loop().time()
        if self._begun_at is None:
            self._begun_at = self.last_active
        call, before = self._current_request, len(self._messages)
        body = self._unread_body if call is None else call.content
        is_early = (body is None or body.is_eof()) and (call is not None or not self._has_call)
        super().data_received(data)
        if len(self._messages) > before:
            self._has_call = True
            self._keep_head(0)
        elif is_early and data:
            self._keep_head(self._head_bytes + len(data))

    def called(self) -> None:
        """Note that the head of a request is whole, and its call begins."""
        self.is_calling = True

    def answered(self) -> None:
        """Note that the call has ended; what came meanwhile is the next request."""
        call = self._current_request
        # The library drops what comes of it for a while, so that the client reads why it was refused.
        self._unread_body = None if call is None or call.content.is_eof() else call.content
        self.is_calling = False
        self._has_call = bool(self._messages)
        self._begun_at = None
        self._answered_at = asyncio.get_running_loop().time()

    def pause_writing(self) -> None:
        """Count the answer, which the client does not read as fast as it comes."""
        super().pause_writing()
        self._bounds.output.note(self, self.kept_bytes)

    def resume_writing(self) -> None:
        """Count the answer no more."""
        super().resume_writing()
        self._bounds.output.forget(self)

    @property
    def kept_bytes(self) -> int:
        """Bytes of answers that the client has not read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        """The same, with those that the system has taken and the client's has not."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        return 0 if sock is None else self.kept_bytes + unsent_by_system(sock.fileno())

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read now."""
        return self._reading_paused or self._buffer_paused

    def has_unread(self, now: float) -> bool:
        """Return whether the client has left a part of its answer unread for a while."""
        return not self.is_calling and self._answered_at < now - ANSWER_S / 2 and self.kept_bytes > 0

    def reads_on(self, now: float) -> None:
        """Note that the client has read a part of its answer since it was looked at last."""
        self._answered_at = now

    def has_been_slow(self, now: float) -> bool:
        """Return whether the client takes longer than it may, for the head of a request or for reading an answer."""
        if self.is_calling or self.transport is None:
            return False
        if self._begun_at is not None and self._begun_at < now - HEAD_S and not self.writing_paused:
            return True
        return self._answered_at < now - ANSWER_S and self.kept_bytes > 0

    def give_way(self, reason: str) -> None:
        """Close the connection, because heads that are not whole take too much."""
        self._bounds.slow += 1
        self.cut_off()
        self._bounds.heads.keep(self, 0)

    def abort(self, reason: str) -> None:
        """Close the connection, because answers that are not read take too much."""
        self._bounds.slow += 1
        self.cut_off()

    def _keep_head(self, count: int) -> None:
        self._head_bytes = count
        if count > HEAD_BYTES_MAX or not self._bounds.heads.keep(self, count):
            self.give_way("too much before a head is whole")

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


class BodyShare:
    """The bytes that the body of one call takes of all connections' `room`; `end` when the call ends."""

    __slots__ = ("_owner", "_room", "_taken")

    def __init__(self, room: SharedPlaces, owner: Owner) -> None:
        self._room = room
        self._owner = owner
        self._taken = 0

    def take(self, count: int) -> None:
        """Take so many bytes more; BodiesFullError when there are too many."""
        if not self._room.take(self._owner, count):
            raise BodiesFullError(f"{self._room.taken} bytes of bodies are here, and this host has its share of them")
        self._taken += count

    def end(self) -> None:
        """Give all back."""
        if self._taken:
            self._room.give_back(self._owner, self._taken)
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
