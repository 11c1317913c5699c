"""The event loop of one simulated process: asyncio's interface over the world's time and network.

Only what the code under test uses is there; everything else is asyncio's NotImplementedError.  A paused process
(SIGSTOP, a machine that is stuck) keeps its timers and what arrives for it, and finds itself late when it goes on.
A dead one never turns again; what its coroutines would do when Python lets go of them reaches nobody.

The world asks every loop at every step when it wants its next turn, some fifty thousand times in a run, so `moment`
is kept up to date where it changes instead of being found out; and handles do without asyncio's debugging.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from simulation.world import NEVER

if TYPE_CHECKING:
    from simulation.network import Network, SimListener
    from simulation.world import World


class _Soon(asyncio.Handle):
    """A call in the next turn."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # as asyncio's: nothing is kept alive by what will not be called


class _Later(_Soon):
    """A call at a moment."""

    __slots__ = ("moment",)

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: contextvars.Context | None
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.moment = NEVER

    def when(self) -> float:
        """As asyncio's timers say it."""
        return self.moment

    def cancel(self) -> None:
        super().cancel()
        self._loop.look_again(self.moment)


class SimLoop(asyncio.AbstractEventLoop):
    """One process's loop; `host` is its address in the network."""

    def __init__(self, world: World, network: Network, host: str) -> None:
        self.host = host
        self.is_dead = False
        self.revision: object = None  # which version its process speaks as, where that counts (`revisions`)
        self._world = world
        self._network = network
        self.moment = NEVER  # when it wants its next turn: in the past for at once
        self._paused_until = 0.0
        self._ready: deque[_Soon] = deque()
        self._timers: list[tuple[float, int, _Later]] = []
        self._numbers = 0
        world.join(self)

    def die(self) -> None:
        """The process is gone."""
        self.is_dead = True
        self._world.leave(self)

    # -- for the world

    @property
    def paused_until(self) -> float:
        """It has no turn before."""
        return self._paused_until

    @paused_until.setter
    def paused_until(self, moment: float) -> None:
        self._paused_until = moment
        self._look()

    def turn(self) -> None:
        """Run what is due now; what that brings about waits for the next turn."""
        ready, timers, now = self._ready, self._timers, self._world.now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if self.is_dead:
                    return
        finally:
            asyncio._set_running_loop(None)
            self._look()

    def look_again(self, moment: float) -> None:
        """A timer of this moment is over; it counts only if it was the first."""
        if self._timers and self._timers[0][0] == moment:
            self._look()

    def _look(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if self._ready:
            self.moment = self._paused_until
        else:
            self.moment = max(timers[0][0], self._paused_until) if timers else NEVER

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
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        self.moment = self._paused_until
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        timer = _Later(callback, args, self, context)
        timer.moment = when
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        if when < self.moment:
            self.moment = max(when, self._paused_until)
        return timer

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

    def begin(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that nobody awaits: an exception that ends it is a finding, though its maker keeps the task."""
        task = self.create_task(main)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.call_exception_handler({"message": f"task {task.get_coro()!r} ended", "exception": error})

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
