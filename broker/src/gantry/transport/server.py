"""Listeners and the connections they brought.

One `RemotingServer` has any number of listeners (10911 and the VIP port 10909 answer the same) and one
read buffer.  It closes silent connections by one sweep instead of a timer each (`silence`), refuses connections
over its limit, and those that would take descriptors of the store (see `descriptors`), by closing them
at once.  Requests are handled by `on_requests`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gantry.errors import ConfigError
from gantry.transport.connection import Connection
from gantry.transport.descriptors import backlog, is_reserved, limit
from gantry.transport.gathered import GatheredSockets, Listener, OnSends, can_gather
from gantry.transport.limits import ConnectionLimits
from gantry.transport.listening import listen, open_sockets
from gantry.transport.output import OutputBudget, ServerShares
from gantry.transport.readbuffer import ReadBuffer
from gantry.transport.silence import OutputProgress, unsent_by_system
from gantry.transport.turns import Turns, TurnTime
from gantry.wire.command import Request

log = logging.getLogger(__name__)

_BACKLOG = 1024
_SWEEPS_PER_IDLE = 12  # silence is noticed at most a twelfth of idle_s late
_FULL_CONNECTIONS = 4  # so many times the output that one connection may have is allowed for all together
_GOODBYE_S = 1.0  # connections that have not gone by themselves after this long are aborted


@dataclass(frozen=True, slots=True)
class Together:
    """How connections are read and written together; see `gathered`."""

    is_wanted: bool = True  # False: by the loop's own transports, which every system has
    turns: Turns = field(default_factory=Turns)
    clock: Callable[[], float] = time.monotonic  # in seconds, for how long a turn lasts; a loop's own may stand still
    on_sends: OnSends | None = None  # takes whole sends of several connections; None: one connection after the other


class RemotingServer:
    """Accepts connections; start() may be called once per address, close() once."""

    def __init__(
        self,
        on_requests: Callable[[Connection, list[Request]], None],
        on_connect: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        limits: ConnectionLimits | None = None,
        buffer: ReadBuffer | None = None,
        together: Together | None = None,
    ) -> None:
        """together: how connections are read and written together where that is possible; None: as by default."""
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.refused = 0  # connections closed at once because there were too many
        self._on_requests = on_requests
        self._on_connect = on_connect
        self._on_close = on_close
        self._limits = limits or ConnectionLimits()
        self._buffer = buffer or ReadBuffer()
        self._together = together or Together()
        self._shared: ServerShares | None = None  # from the first connection on: it needs the loop
        self._gathered: GatheredSockets | None = None
        self._listeners: list[asyncio.Server | Listener] = []
        self._refused_told = 0
        self._progress = OutputProgress[Connection]()
        self._sweep: asyncio.TimerHandle | None = None
        self._closing = False
        self._all_gone: asyncio.Event = asyncio.Event()

    async def start(self, host: str, port: int) -> int:
        """Listen on host:port (0: any free port) and give back the port."""
        loop = asyncio.get_running_loop()
        try:
            listener = await self._listen(host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        if self._sweep is None:
            self._sweep = loop.call_later(self._limits.idle_s / _SWEEPS_PER_IDLE, self._look_after)
        return int(listener.sockets[0].getsockname()[1])

    async def _listen(self, host: str, port: int) -> asyncio.Server | Listener:
        together = self._together
        if together.is_wanted and can_gather(asyncio.get_running_loop()):
            most = backlog(_BACKLOG)
            if self._gathered is None:  # before there are sockets: it fails when no descriptor is left
                self._gathered = GatheredSockets(self._buffer, together.turns, together.on_sends)
            sockets = await open_sockets(host, port, most)
            self._listeners.append(self._gathered.accept(sockets, most, self._make_connection))
            return self._listeners[-1]
        listener = await listen(self._make_connection, host, port, backlog=backlog(_BACKLOG), start_serving=False)
        # Ours before the next await: a cancelled start must not leave a socket that is never closed.
        self._listeners.append(listener)
        await listener.start_serving()
        return listener

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [sock.getsockname()[:2] for listener in self._listeners for sock in listener.sockets]

    async def close(self) -> None:
        """Close in this order: stop accepting, close each connection after its output, wait, abort those that stay."""
        self._closing = True
        for listener in self._listeners:
            listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self.connections):
            connection.close("server closes")
        if self.connections:
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort("server closed")
                await self._all_gone.wait()
        for listener in self._listeners:
            await listener.wait_closed()
        if self._gathered is not None:
            self._gathered.close()
            self._gathered = None

    def _make_connection(self) -> Connection:
        if self._shared is None:
            most, loop = _FULL_CONNECTIONS * self._limits.output_bytes_max, asyncio.get_running_loop()
            self._shared = ServerShares(OutputBudget(most, loop.call_soon), TurnTime(self._together.clock))
        return Connection(self._buffer, self._limits, self._on_requests, self._connected, shared=self._shared)

    def _connected(self, connection: Connection) -> None:
        is_full = len(self.connections) >= self._limits.connections_max
        if self._closing or is_full or is_reserved(connection.descriptor, len(self.connections)):
            self.refused += 1
            connection.abort("too many connections")
            return
        self.connections[connection] = None
        connection.closed_listeners.append(self._lost)
        if self._on_connect is not None:
            self._on_connect(connection)

    def _lost(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if self._on_close is not None:
            self._on_close(connection)
        if self._closing and not self.connections:
            self._all_gone.set()

    def close_silent(self, now: float) -> None:
        """Close the connections that are read from, and sent and took nothing for the idle time before `now`."""
        quiet = [one for one in self.connections if one.last_active < now - self._limits.idle_s / 2]
        unsent = {one: one.kept_bytes + unsent_by_system(one.descriptor) for one in quiet if one.has_output}
        for one in self._progress.taken_since(unsent):
            one.last_active = now
        for one in quiet:
            if one.last_active >= now - self._limits.idle_s or one.is_held_up:
                continue
            if one.closed:
                one.abort("still draining after the idle time")
            else:
                one.close(f"silent for {self._limits.idle_s:g} s")

    def _look_after(self) -> None:
        if self.refused > self._refused_told:
            log.warning(
                "%d connections were closed at once: there are %d, of %d allowed, and the limit of open files is %d",
                self.refused - self._refused_told,
                len(self.connections),
                self._limits.connections_max,
                limit(),
            )
            self._refused_told = self.refused
        loop = asyncio.get_running_loop()
        self.close_silent(loop.time())
        self._sweep = loop.call_later(self._limits.idle_s / _SWEEPS_PER_IDLE, self._look_after)
