"""The life cycle of a consumer from start() to stop(), and its required tasks.

A failed task would otherwise go unnoticed: the consumer would continue without commits or rebalancing.  So the first
task that fails ends the consumer, and callers that wait for its end get the exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol

from gantry.transport.tasks import watched

log = logging.getLogger(__name__)

_GOING_ON: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references only


class ConsumerLifecycle:
    """The life cycle of one consumer; `group` is for the log, `wake` is called when a task failed."""

    def __init__(self, group: str, wake: Callable[[], None] | None = None) -> None:
        self._group = group
        self._wake = wake
        self._ended: asyncio.Future[None] | None = None  # resolved by end(), or by a task that failed

    def begin(self) -> None:
        """Note that start() was called. It may be called once, because the tasks of the first call would run on."""
        assert self._ended is None, "start() was called before; make a new consumer"
        self._ended = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Note that stop() was called; a second call changes nothing."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    @property
    def is_over(self) -> bool:
        """Whether it has begun and ended, by stop() or by a failure."""
        return self._ended is not None and self._ended.done()

    def check(self) -> None:
        """Raise the error that ended the consumer, if there was one; only after its end."""
        assert self._ended is not None, "start() was not called"
        self._ended.result()

    def left(self, error: BaseException | None) -> None:
        """Raise the error that ended the consumer, unless the `async with` block itself raised one."""
        if error is None:
            self.check()

    async def wait(self) -> None:
        """Wait until stop(); raises the error that ended the consumer, if there was one."""
        assert self._ended is not None, "start() was not called"
        await asyncio.shield(self._ended)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Start a task; when it fails, the consumer ends."""
        return watched(work, name, lambda error: self._task_ended(name, error))

    def _task_ended(self, name: str, error: BaseException | None) -> None:
        if error is not None and self._ended is not None and not self._ended.done():
            log.critical("%s: the task %s failed, the consumer ends", self._group, name, exc_info=error)
            self._ended.set_exception(error)
            if self._wake is not None:
                self._wake()


class Started(Protocol):
    """An object with start() and stop()."""

    async def start(self) -> None:
        ...

    async def stop(self) -> None:
        ...


async def begun(client: Started) -> None:
    """Call start(); when it fails or is cancelled, call stop(), because the caller would not."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Wait for the work; when the caller is cancelled, the work continues."""
    task = asyncio.ensure_future(work)
    _GOING_ON.add(task)
    task.add_done_callback(_GOING_ON.discard)
    await asyncio.shield(task)


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
