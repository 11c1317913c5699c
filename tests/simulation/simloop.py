"""The event loop of one simulated process: asyncio's interface over the world's time and network.

Only what the code under test uses is there; everything else is asyncio's NotImplementedError.  A paused process
(SIGSTOP, a machine that is stuck) keeps its timers and what arrives for it, and finds itself late when it goes on.
A dead one never turns again; what its coroutines would do when Python lets go of them reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.network import Network, SimListener
    from simulation.world import World


class SimLoop(asyncio.AbstractEventLoop):
    """One process's loop; `host` is its address in the network."""

    def __init__(self, world: World, network: Network, host: str) -> None:
        self.host = host
        self.is_dead = False
        self.paused_until = 0.0
        self.last_error: BaseException | None = None
        self._world = world
        self._network = network
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        world.join(self)

    def die(self) -> None:
        """The process is gone."""
        self.is_dead = True
        self._world.leave(self)

    # -- for the world

    def next_moment(self) -> float | None:
        """When it wants its next turn; None for never."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if self._ready:
            return max(self._world.now, self.paused_until)
        return max(self._timers[0][0], self.paused_until) if self._timers else None

    def turn(self) -> None:
        """Run what is due now; what that brings about waits for the next turn."""
        while self._timers and self._timers[0][0] <= self._world.now:
            self._ready.append(heapq.heappop(self._timers)[2])
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
                if self.is_dead:
                    return
        finally:
            asyncio._set_running_loop(None)

    # -- asyncio's interface

    def time(self) -> float:
        """The world's time: nobody's monotonic clock differs."""
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells this; cancelled ones are passed over when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody took is a finding, except of a process that is dead."""
        if not self.is_dead:
            self._world.problem(f"{self.host}: {context.get('message')}: {context.get('exception')!r}")

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        """Addresses only; there are no names in this world."""
        return [(socket.AF_INET, kwargs.get("type", socket.SOCK_STREAM), 0, "", (host, port or 0))]

    async def create_server(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: Any = None, **kwargs: Any
    ) -> SimListener:
        """Listen, at once unless `start_serving` is False."""
        listener = self._network.listener(self, protocol_factory, host or self.host, port)
        if kwargs.get("start_serving", True):
            await listener.start_serving()
        return listener

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: Any = None, **kwargs: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect, or be refused, or hear nothing while the way is cut."""
        transport = await self._network.connect(self, host, port)
        protocol = protocol_factory()
        transport.use(protocol)
        return transport, protocol
