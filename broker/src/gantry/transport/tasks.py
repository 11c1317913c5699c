"""Tasks that must not end unnoticed.

A task that failed with an exception would otherwise go unnoticed: a broker would go on without
renewing its lease, following its master or registering, a consumer without commits or rebalancing, and look well.
The code that starts such a task gives a function that is called when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


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
