"""The life of a client: the order in which its parts begin and end.  Every asyncio client has a `Lifecycle`.

start   1  the session starts its heartbeats; connections are made when they are first needed
        2  the routes start to be refreshed
        3  `begin` of the client: it checks its filters, meets brokers, and starts its tasks
stop    1  the life is over: calls that wait for messages end
        2  `finish` of the client: it takes no more messages, waits for those in work, and commits
        3  every task that the client still has is cancelled
        4  the session ends its own tasks (heartbeats, requests for routes), unregisters the client at every connected
           broker, and closes the connections

Nothing stays open, whatever happens:

    a start that fails or is cancelled     the whole stop follows, then the caller gets the error
    a stop that is cancelled in `finish`   steps 3 and 4 follow at once; the caller does not wait for them
    ... or in step 3 or 4                  they go on to their end, without the caller
    a stop that fails in `finish`          steps 3 and 4 follow, then the caller gets the error
    two stops at a time                    both call `finish`; steps 3 and 4 follow when both have ended
    a second stop later                    does steps 3 and 4 only, and finds nothing to do
    a stop before or during a start        the start raises an error

A task that the client needs (`spawn`) and that fails would otherwise go unnoticed: the consumer would continue without
commits or rebalancing.  So the first such failure ends the life.  Callers that wait for the end get the exception.

The blocking clients have one part, `connections.blockingsession`, whose close() unregisters and closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.errors import ClosedError
from gantry.transport.tasks import Tasks, watched

log = logging.getLogger(__name__)

_GOING_ON: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references only


class Lifecycle:
    """The life of one client; `name` is for the log, `wake` is called when the life is over."""

    def __init__(
        self,
        name: str,
        session: Session,
        routes: Routes | None = None,  # None: routes are not refreshed
        tasks: Tasks | None = None,
        *,
        begin: Callable[[], Awaitable[None]] | None = None,
        finish: Callable[[], Awaitable[None]] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.tasks = tasks or Tasks()  # all that the client has, but those of its session
        self._name = name
        self._session = session
        self._routes = routes
        self._begin = begin
        self._finish = finish
        self._wake = wake
        self._ended: asyncio.Future[None] | None = None  # set by start(); resolved by stop(), or by a task that failed
        self._stops = 0  # how many calls of stop() have not ended `finish`
        self._is_closing = False
        self._closed = asyncio.Event()

    async def start(self) -> None:
        """Begin the parts in order; when one fails or the call is cancelled, they all end."""
        assert self._ended is None and not self._is_closing, "start() was called before; make a new client"
        self._ended = asyncio.get_running_loop().create_future()
        try:
            self._session.start()
            if self._routes is not None:
                self._routes.start()
            if self._begin is not None:
                await self._begin()
            if self._is_closing:
                raise ClosedError(f"{self._name}: stop() was called during start(); make a new client")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the parts in order; a cancelled call ends them too, but at once."""
        self._end(None)
        self._stops += 1
        try:
            if self._finish is not None and not self._is_closing:
                await self._finish()
        finally:
            self._stops -= 1
            if not self._stops:
                self._is_closing = True
                await to_the_end(self._close())
        await self._closed.wait()

    async def leave(self, error: BaseException | None) -> None:
        """Stop at the end of an `async with` block, and raise the error that ended the life.

        If the block itself raised an error, that one is more important.
        """
        await self.stop()
        if error is None and self.is_over:
            self.check()

    async def _close(self) -> None:
        async with AsyncExitStack() as ending:  # from below upwards, each also when the one before it failed
            ending.callback(self._closed.set)
            ending.push_async_callback(self._session.close)
            ending.push_async_callback(self.tasks.close)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Start a task that the client needs; when it fails, the life ends."""
        return self.tasks.own(watched(work, name, lambda error: self._task_ended(name, error)))

    @property
    def is_over(self) -> bool:
        """Whether it has begun and ended, by stop() or by a failure."""
        return self._ended is not None and self._ended.done()

    def check(self) -> None:
        """Raise the error that ended the life, if there was one; only after its end."""
        assert self._ended is not None, "start() was not called"
        self._ended.result()

    async def wait(self) -> None:
        """Wait until stop(); raises the error that ended the life, if there was one."""
        assert self._ended is not None, "start() was not called"
        await asyncio.shield(self._ended)

    def _task_ended(self, name: str, error: BaseException | None) -> None:
        if error is not None and self._end(error):
            log.critical("%s: the task %s failed, the client ends", self._name, name, exc_info=error)

    def _end(self, error: BaseException | None) -> bool:
        """Note the end. Return whether this is the first one."""
        if self._ended is None or self._ended.done():
            return False
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
        if self._wake is not None:
            self._wake()
        return True


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Wait for the work; when the caller is cancelled, the work continues."""
    task = asyncio.ensure_future(work)
    _GOING_ON.add(task)
    task.add_done_callback(_GOING_ON.discard)
    await asyncio.shield(task)
