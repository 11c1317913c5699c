"""Tasks that have an owner, and do not end unnoticed.

A task that failed with an exception would otherwise go unnoticed: a broker would go on without
renewing its lease, following its master or registering, a consumer without commits or rebalancing, and look well.
The code that starts such a task gives a function that is called when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


class Tasks:
    """The tasks of one owner, which cancels them at its end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._is_closed = False

    def own(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Keep a task until it ends. Return it, cancelled when the owner has ended already."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._is_closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel all tasks, also those that others start as they end, and wait for them."""
        self._is_closed = True
        while self._running:
            await cancelled(self._running)


async def cancelled(tasks: Iterable[asyncio.Task[T]]) -> None:
    """Cancel tasks and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def watched(
    work: Coroutine[object, object, None], name: str, ended: Callable[[BaseException | None], None]
) -> asyncio.Task[None]:
    """Start a task of this name; `ended` is called with its exception or None when it ends, unless it was cancelled."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(lambda task: None if task.cancelled() else ended(task.exception()))
    return task


def essential(work: Coroutine[object, object, None], what: str, fail: Callable[[str], None]) -> asyncio.Task[None]:
    """Start a task that must not end by itself; `fail` is called with the reason when it does."""
    return watched(work, what, lambda error: fail(f"{what} ended: {error!r}"))
