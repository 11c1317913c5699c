"""Tasks that a broker cannot do without: when one ends by itself, the process has to end.

A task that died of an exception nobody awaits is the quietest of all failures: the broker would go on without renewing,
following or registering, and look well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


def essential(work: Coroutine[None, None, None], what: str, fail: Callable[[str], None]) -> asyncio.Task[None]:
    """The running task; `fail` hears why it ended, unless it was cancelled."""
    task = asyncio.ensure_future(work)

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            fail(f"{what} ended: {task.exception()!r}")

    task.add_done_callback(ended)
    return task
