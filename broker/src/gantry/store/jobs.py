"""A job of the housekeeper whose outcome somebody waits for: by a callback, or in a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.errors import StoreError

if TYPE_CHECKING:
    from gantry.store.background import Done, Job, Worker


def submit_or_refuse(worker: Worker, job: Job, done: Done) -> None:
    """Queue a job. done gets a StoreError also when too many wait."""
    if not worker.submit(job, done):
        done(StoreError("too much waits for the disk"))


async def wait_until_done(begin: Callable[[Done], None]) -> None:
    """Call `begin` with a `done`; return when that is called. StoreError: `done` was called with it."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: StoreError | None) -> None:
        if ended.done():
            return  # who waited was cancelled
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    begin(done)
    await ended
