"""The port that clients connect to: TLS and plain text on one, told apart by the first byte.

gRPC's server can do one or the other on a port, so it listens on a Unix socket, and this module stands before it:

    client --TCP--> first byte is peeked at: 22 begins a TLS handshake, anything else is plain text
           --TLS ends here, where it is--> bytes --Unix socket--> gRPC's server, always in plain text

Bytes are passed on as they come; a side that does not read stops the other side from being read.  The Unix socket of
each connection is bound to an abstract name that holds the client's address, so gRPC's `context.peer()` has it
(`peer_of`).

When nothing can be accepted any more, or gRPC's server is gone, the process has to end: nobody else would notice that
the port is silent.

Bounds: connections in all, of which a host has its share; the time until the first byte and the end of a handshake; the
time in which a client reads nothing of what is written to it, and how much all of them together leave unread; the bytes
of all requests that have not come whole, which gRPC's server keeps (`requestbytes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import unquote

from gantry.errors import ConfigError
from gantry.proxy.requestbytes import RequestBytes
from gantry.transport.fairness import SharedPlaces
from gantry.transport.output import OutputBudget
from gantry.transport.partialbytes import PartialBytes
from gantry.transport.silence import unsent_by_system
from gantry.transport.tasks import Tasks, essential

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 20_000
_FIRST_BYTE_S = 10.0
_HANDSHAKE_S = 10.0
_STALL_S = 90.0  # for a client to take what is written to it: gRPC's own patience is 80 s
_LINGER_S = 10.0  # for a client to read what was written before its connection ended
_BACKLOG = 1024
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.1, 1.0  # while no connection can be accepted
_BROKEN = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})  # the listener itself: no later attempt succeeds
_BUFFER_BYTES_HIGH = 256 << 10
_UNREAD_BYTES_MAX = 256 << 20  # of all clients
_REQUEST_BYTES_MAX = 512 << 20  # of all requests that have not come whole: sixteen of the longest
_TLS_HANDSHAKE = 22
_PREFIX = "gantry-proxy"
_NUMBERS = itertools.count(1)


def peer_of(peer: str) -> str:
    """Return the client's `host:port` from gRPC's name of a spliced connection's peer; other peers stay as they are."""
    _, mark, rest = unquote(peer).partition(f"{_PREFIX}/")
    return rest.split("/", 2)[-1] if mark else peer


def listening_socket(host: str, port: int, is_shared: bool = False) -> socket.socket:
    """Return a listening socket; ConfigError when there is none to have.  is_shared: other processes listen as well."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return found


class Acceptor:
    """Accepts connections and passes them on to a Unix socket; start() once, stop() and close() at the end."""

    def __init__(self, listener: socket.socket, target: str, tls: ssl.SSLContext | None) -> None:
        self._listener = listener
        self._target = target
        self._tls = tls  # None: a TLS handshake ends the connection
        self._tasks = Tasks()
        self._accepting: asyncio.Task[None] | None = None
        self._fail: Callable[[str], None] | None = None  # None: not started, or stopped
        self.open: set[_Client] = set()  # the clients' sides of the connections that are passed on
        self._places = SharedPlaces(CONNECTIONS_MAX)
        self.unread = OutputBudget(_UNREAD_BYTES_MAX, lambda call: asyncio.get_running_loop().call_soon(call))
        self.requests = PartialBytes(_REQUEST_BYTES_MAX)
        self.refused = 0

    def start(self, fail: Callable[[str], None]) -> None:
        """Begin to accept; fail: called with the reason when no connection can be served here any more."""
        self._fail = fail
        self._accepting = self._tasks.own(essential(self._accept(), "gantry-proxy-acceptor", fail))

    def stop(self) -> None:
        """Accept no more; connections go on."""
        self._fail = None
        if self._accepting is not None:
            self._accepting.cancel()
        self._listener.close()

    async def close(self) -> None:
        """End all connections."""
        self.stop()
        await self._tasks.close()
        for client in list(self.open):
            client.abort("the proxy ends")

    async def _accept(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), _PAUSE_FIRST_S
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptor is free, or the client has gone already
                if error.errno in _BROKEN:
                    raise
                log.warning("a connection was not accepted: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(_PAUSE_LAST_S, 2 * pause_s)
                continue
            pause_s = _PAUSE_FIRST_S
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            client = _Client(f"{host}:{address[1]}", self._places, self.unread, self.requests, self.open)
            if not self._places.take(client):
                self.refused += 1
                connection.close()
                continue
            self._tasks.own(asyncio.create_task(self._enter(connection, client)))

    async def _enter(self, connection: socket.socket, client: _Client) -> None:
        peer = client.peer
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_FIRST_BYTE_S):
                first = await _peek(connection)
            if not first:
                connection.close()
            elif first[0] == _TLS_HANDSHAKE and self._tls is None:
                log.info("%s: a client began TLS, which is not set up here; see --tls-cert", peer)
                connection.close()
            else:
                await self._splice(connection, client, self._tls if first[0] == _TLS_HANDSHAKE else None)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.info("%s: connection ended before it began: %s", peer, str(error) or "too slow")
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            if client not in self.open:
                client.leave()

    async def _splice(self, connection: socket.socket, client: _Client, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        server = _Side()
        client.other, server.other = server, client
        handshake_s = None if tls is None else _HANDSHAKE_S
        await loop.connect_accepted_socket(lambda: client, connection, ssl=tls, ssl_handshake_timeout=handshake_s)
        inner: socket.socket | None = None
        is_joined = False
        try:
            inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            inner.bind(f"\0{_PREFIX}/{os.getpid()}/{next(_NUMBERS)}/{client.peer}")
            await loop.sock_connect(inner, self._target)
            await loop.create_unix_connection(lambda: server, sock=inner)
            is_joined = True
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if self._fail is not None:
                self._fail(f"gRPC's server behind the port cannot be reached: {error}")
            raise
        finally:
            if not is_joined:  # whatever it was: else the client would count as open for ever
                client.abort("it could not be passed on")
                if inner is not None:
                    inner.close()
        client.begin()


async def _peek(connection: socket.socket) -> bytes:
    """Return the first byte of a connection, which stays to be read; nothing when it was closed."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    while True:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            return connection.recv(1, socket.MSG_PEEK)
        ready = loop.create_future()
        loop.add_reader(connection.fileno(), _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(connection.fileno())


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Side(asyncio.Protocol):
    """One of the two ends; what it receives is written to `other`."""

    other: _Side

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []  # what came before the other end was there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what is kept of the output."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's with TLS is none by its class
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES_HIGH)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on."""
        if self.other._transport is None:
            self._waiting.append(data)
        else:
            self.other.write(data)

    def eof_received(self) -> bool:
        """End the connection: HTTP/2 has no use for half of one."""
        return False

    def write(self, data: bytes) -> None:
        """Write to this end."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading from the other end, because this one does not take more."""
        if self.other._transport is not None and not self.other._transport.is_closing():
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again."""
        if self.other._transport is not None and not self.other._transport.is_closing():
            self.other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """End the other end too, when it has written what came."""
        self.other.end()

    def end(self) -> None:
        """End when all is written; soon also when the other side does not read it."""
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(_LINGER_S, self._cut)

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Client(_Side):
    """The client's end; it has a place among all connections until it is lost."""

    def __init__(
        self, peer: str, places: SharedPlaces, unread: OutputBudget, requests: PartialBytes, opened: set[_Client]
    ) -> None:
        super().__init__()
        self.peer = peer
        self.last_active = 0.0  # loop time of the last read
        self._requests = requests
        self._coming = RequestBytes()
        self._counted = 0  # of them, in the budget
        self._places = places
        self._unread = unread
        self._open = opened
        self._has_place = True
        self._stall: asyncio.TimerHandle | None = None  # while the client takes no more
        self._unsent = 0  # bytes, when that was looked at last

    def begin(self) -> None:
        """Pass on what came before the other end was there, and read on."""
        assert self._transport is not None
        for data in self._waiting:
            self.other.write(data)
        self._waiting.clear()
        if self._transport.is_closing():
            self.other.end()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing until the server's end is there."""
        super().connection_made(transport)
        self._open.add(self)
        assert self._transport is not None
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Count the requests that have not come whole, and pass the bytes on."""
        self.last_active = asyncio.get_running_loop().time()
        super().data_received(data)
        self._coming.look_at(data)
        if self._coming.unfinished != self._counted:
            self._counted = self._coming.unfinished
            if not self._requests.keep(self, self._counted):
                self.give_way(f"{self._counted} bytes of unfinished requests, the most of all, over their budget")

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read from the client."""
        return self._transport is not None and not self._transport.is_reading()

    def give_way(self, reason: str) -> None:
        """End at once, because requests that have not come whole take too much."""
        self._requests.keep(self, 0)
        self.abort(reason)

    def pause_writing(self) -> None:
        """Stop reading from the server, and look whether the client reads on.

        What is not read is not seen to end either: so a client that never reads on is let go here.
        """
        self._unread.note(self, self.kept_bytes)
        self._await_reading()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Read from the server again."""
        self._calm()
        super().resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Give back the place, and end the other end."""
        self._calm()
        self._requests.keep(self, 0)
        self._open.discard(self)
        self.leave()
        super().connection_lost(error)

    def leave(self) -> None:
        """Give back the place, once."""
        if self._has_place:
            self._has_place = False
            self._places.give_back(self)

    @property
    def kept_bytes(self) -> int:
        """Bytes that the client has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self, reason: str) -> None:
        """End at once."""
        log.info("%s: connection ended: %s", self.peer, reason)
        self._cut()

    @property
    def is_stalled(self) -> bool:
        """Whether output waits for the client to read on."""
        return self._stall is not None

    def unsent_bytes(self) -> int:
        """Return the bytes that neither the client nor its system has taken."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return self.kept_bytes + (0 if sock is None else unsent_by_system(sock.fileno()))

    def look(self) -> None:
        """End when the client has read nothing since the last look; else look again after a while."""
        before = self._unsent
        self._await_reading()
        if self._unsent >= before:
            self.abort(f"it read nothing of {before} bytes for {_STALL_S:g} s")

    def _await_reading(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        self._unsent = self.unsent_bytes()
        self._stall = asyncio.get_running_loop().call_later(_STALL_S, self.look)

    def _calm(self) -> None:
        self._unread.forget(self)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
