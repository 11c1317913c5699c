"""Outgoing connections, one per address, opened when first needed.

    UnreachableError      nothing was sent: no connection, or the last attempt failed a moment ago, or the other side
                          takes no more output
    ClosedError           nothing was sent: `close` was called, or this is a forked child's copy
    OutcomeUnknownError   sent, and no answer came

A request waits, within its time, while more than `ConnectionLimits.output_bytes_high` of output wait for the other
side.  So no burst brings a connection to the limit at which it is cut, and requests that are under way are not lost
with it.

Callers that ask for an address while it is being connected share the attempt.  After a failure the
address is not tried for a growing, jittered pause in which every call fails at once: a dead broker must not
cost each caller a connection attempt.  Requests that the other side sends (a notice, a check-back) go to
`on_requests`, hot frames excepted: a broker never sends those.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gantry.errors import ClosedError, ConfigError, OutcomeUnknownError, UnreachableError
from gantry.leaves import frames
from gantry.transport import forked
from gantry.transport.addresses import split_address
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.lookups import connect
from gantry.transport.readbuffer import ReadBuffer
from gantry.wire.command import Request

T = TypeVar("T")
log = logging.getLogger(__name__)

_REST_FIRST_S = 0.05
_REST_LAST_S = 1.0  # with the caller's own pause, a broker that restarts is found again within two seconds
_CONNECT_S = 3.0  # RocketMQ's connectTimeoutMillis
_DEAF_S = 10.0  # an unanswered request closes its connection when nothing was received on it for this long
_ONEWAY_S = 3.0  # how long a one-way request may wait until the other side takes output
_READ_BUFFER_BYTES = 256 << 10  # one pull reply of the usual size


@dataclass(slots=True)
class _Rest:
    """The pause after a failed connection attempt to one address: how long the next one is, and until when."""

    until: float
    failures: int


class RemotingClient:
    """Requests to any number of addresses; belongs to the loop that uses it first."""

    def __init__(
        self,
        on_requests: Callable[[Connection, list[frames.Command]], None] | None = None,
        limits: ConnectionLimits | None = None,
        connect_s: float = _CONNECT_S,
        deaf_s: float = _DEAF_S,
        on_connect: Callable[[str, Connection], None] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._on_requests = on_requests
        self._on_connect = on_connect  # told of a new connection before anything else is sent on it
        self.lost_listeners: list[Callable[[str], None]] = []  # told the address of each connection that ended
        self._limits = limits or ConnectionLimits()
        self._connect_s = connect_s
        self._deaf_s = deaf_s
        self._buffer = ReadBuffer(_READ_BUFFER_BYTES)
        self._connections: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Task[Connection]] = {}
        self._rests: dict[str, _Rest] = {}
        # Jitter: clients that lost one broker together must not come back together.
        self._chance = chance or random.Random()
        self._closed = ""  # why, once it is
        self.oneways_in_doubt = 0  # of connections that are gone; whether the other side read them is not known
        forked.enrol(self)

    def forked(self) -> None:
        """In a forked child: this copy of the client sends nothing; loop and sockets are the parent's."""
        self._closed = "it belongs to the process that this one was forked from; make a new one here"
        for connection in self._connections.values():
            connection.disown()
        self._connections.clear()
        self._attempts.clear()

    async def invoke(self, address: str, command: frames.Command, timeout_s: float) -> frames.Command:
        """Send a request to `host:port` and await its answer, the time to connect included."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = await self.connect(address, timeout_s)
        if not connection.is_writable:
            await self._room(address, connection, deadline)
        left_s = deadline - loop.time()
        if left_s <= 0:
            raise UnreachableError(f"{address}: the time of {timeout_s:g} s was over before the request was sent")
        try:
            return await connection.invoke(command, left_s)
        except OutcomeUnknownError:
            self.unanswered(connection)
            raise

    def unanswered(self, connection: Connection) -> None:
        """End a half-open connection: the machine at the other end is gone, so it is never closed from there."""
        if asyncio.get_running_loop().time() - connection.last_active > self._deaf_s:
            connection.abort(f"no sign of life for {self._deaf_s:g} s")

    def ready(self, address: str) -> Connection | None:
        """Return the open connection to an address if the other side takes output now; None otherwise."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_writable else None

    async def send_oneway(self, address: str, command: frames.Command, timeout_s: float = _ONEWAY_S) -> None:
        """Send a one-way request; returns when it is handed to the socket.

        UnreachableError when the other side does not take it within the time.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.is_writable:
            deadline = asyncio.get_running_loop().time() + timeout_s
            connection = await self.connect(address, timeout_s)
            await self._room(address, connection, deadline)
        connection.send_oneway(command)

    async def _room(self, address: str, connection: Connection, deadline: float) -> None:
        """Wait until the other side takes output; UnreachableError when it does not in time, or is gone."""
        try:
            async with asyncio.timeout_at(deadline):
                await connection.wait_writable()
        except TimeoutError:
            self.unanswered(connection)
            raise UnreachableError(f"{address}: it does not read what it was sent; this request was not sent") from None
        if connection.closed:
            raise UnreachableError(f"{address}: connection closed ({connection.close_reason}); not sent")

    async def connect(self, address: str, timeout_s: float) -> Connection:
        """The connection to an address, a new one if there is none; UnreachableError when that fails."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = await self._connected(address, timeout_s)
        return connection

    def connections(self) -> dict[str, Connection]:
        """The open connections by address."""
        return {address: connection for address, connection in self._connections.items() if not connection.closed}

    async def close(self, is_urgent: bool = False) -> None:
        """Close in this order: refuse new connections, end attempts, close open ones, wait until sockets are gone.

        is_urgent: output that waits is dropped, so that a peer that takes nothing delays nothing.
        """
        self._closed = self._closed or "it was stopped; make a new one"
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        connections = list(self._connections.values())
        gone = [asyncio.Event() for _ in connections]
        for connection, event in zip(connections, gone, strict=True):
            connection.closed_listeners.append(partial(_tell, event))
            end = connection.abort if is_urgent else connection.close
            end("client closes")
        await asyncio.gather(*(event.wait() for event in gone))  # a close lasts no longer than it lingers
        self._connections.clear()

    async def _connected(self, address: str, timeout_s: float) -> Connection:
        if self._closed:
            raise ClosedError(f"{address}: this client is closed: {self._closed}")
        attempt = self._attempts.get(address)
        if attempt is None:
            rest = self._rests.get(address)
            if rest is not None and rest.until > asyncio.get_running_loop().time():
                raise UnreachableError(f"{address}: not reachable a moment ago; next attempt shortly")
            attempt = asyncio.ensure_future(self._connect(address))
            attempt.add_done_callback(_heard)
            self._attempts[address] = attempt
        try:
            async with asyncio.timeout(timeout_s):
                return await shared(attempt)
        except TimeoutError:
            raise UnreachableError(f"{address}: no connection within {timeout_s:g} s") from None

    async def _connect(self, address: str) -> Connection:
        try:
            host, port = split_address(address)
            async with asyncio.timeout(self._connect_s):
                connection = await connect(self._make_connection, host, port)
        except (OSError, TimeoutError, ConfigError) as error:
            self._let_rest(address)
            raise UnreachableError(f"{address}: {str(error) or 'no connection in time'}") from error
        finally:
            del self._attempts[address]
        self._rests.pop(address, None)
        self._connections[address] = connection
        connection.closed_listeners.append(lambda lost: self._forget(address, lost))
        if self._on_connect is not None:
            self._on_connect(address, connection)
        return connection

    def _make_connection(self) -> Connection:
        return Connection(self._buffer, self._limits, self._dispatch, reads_on=True)

    def _let_rest(self, address: str) -> None:
        failures = self._rests[address].failures + 1 if address in self._rests else 1
        pause_s = min(_REST_LAST_S, _REST_FIRST_S * 2.0 ** min(failures - 1, 16)) * self._chance.uniform(0.5, 1.0)
        self._rests[address] = _Rest(asyncio.get_running_loop().time() + pause_s, failures)

    def _forget(self, address: str, connection: Connection) -> None:
        if connection.oneways_in_doubt:
            self.oneways_in_doubt += connection.oneways_in_doubt
            text = "%s: connection gone (%s); %d one-way messages may not have arrived"
            log.warning(text, address, connection.close_reason, connection.oneways_in_doubt)
        if self._connections.get(address) is connection:
            del self._connections[address]
            for listener in self.lost_listeners:
                listener(address)

    def _dispatch(self, connection: Connection, requests: list[Request]) -> None:
        commands = [request for request in requests if isinstance(request, frames.Command)]
        if self._on_requests is not None and commands:
            self._on_requests(connection, commands)


async def shared(task: asyncio.Task[T]) -> T:
    """Return the result of a task that several callers wait for; a caller that gives up does not end it for others.

    ClosedError when the task was cancelled by its owner: CancelledError is only for a caller that was itself cancelled.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is None or caller.cancelling() or not task.cancelled():
            raise
        raise ClosedError("not sent: this client was stopped meanwhile; make a new one") from None


def _tell(event: asyncio.Event, _: Connection) -> None:
    event.set()


def _heard(attempt: asyncio.Task[Connection]) -> None:
    """Retrieve the attempt's exception: all callers may have given up, and asyncio would log it as never retrieved."""
    if not attempt.cancelled():
        attempt.exception()
