"""A consumer's life, from start() to stop(), and the tasks without which it is not whole.

A task that died of an exception nobody awaits is the quietest of all failures: the consumer would go on without
committing or sharing queues, and look well.  So the first one that breaks ends the life, and anyone who waits for its
end is told why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol

log = logging.getLogger(__name__)

_GOING_ON: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references only


class Life:
    """One consumer's; `group` is for the log, `wake` is called when a task broke."""

    def __init__(self, group: str, wake: Callable[[], None] | None = None) -> None:
        self._group = group
        self._wake = wake
        self._ended: asyncio.Future[None] | None = None  # resolved by end(), or by a task that broke

    def begin(self) -> None:
        """start() was called; it is called once, because the tasks of the first call would go on unseen."""
        assert self._ended is None, "start() was called before; make a new consumer"
        self._ended = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """stop() was called; a second call changes nothing."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    @property
    def is_over(self) -> bool:
        """Whether it began and has ended, one way or the other."""
        return self._ended is not None and self._ended.done()

    def check(self) -> None:
        """Raise what broke the consumer, if something did; for a life that is over."""
        assert self._ended is not None, "start() was not called"
        self._ended.result()

    def left(self, error: BaseException | None) -> None:
        """The `async with` of the consumer has ended: raise what broke the consumer, unless the block raised itself."""
        if error is None:
            self.check()

    async def wait(self) -> None:
        """Until stop(); raises what broke the consumer, if something did."""
        assert self._ended is not None, "start() was not called"
        await asyncio.shield(self._ended)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a task without which the consumer is not whole."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._ended is not None and not self._ended.done():
            log.critical("%s: %s broke, the consumer ends", self._group, task.get_name(), exc_info=error)
            self._ended.set_exception(error)
            if self._wake is not None:
                self._wake()


class Started(Protocol):
    """Something with a start and a stop."""

    async def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End."""
        ...


async def begun(client: Started) -> None:
    """start(); one that fails or is cancelled leaves nothing behind, because nobody would call stop()."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Await it; when the caller is cancelled it goes on by itself."""
    task = asyncio.ensure_future(work)
    _GOING_ON.add(task)
    task.add_done_callback(_GOING_ON.discard)
    await asyncio.shield(task)


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and see their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
