"""Tasks that have an owner, and do not end unnoticed."""

from __future__ import annotations

import asyncio

from gantry.transport.tasks import Tasks, essential, watched
from testkit.patience import HANG_S


async def dies() -> None:
    raise ValueError("no good")


async def returns() -> None:
    return


async def waits() -> None:
    await asyncio.Event().wait()


async def test_the_end_of_an_essential_task_is_heard_with_its_reason() -> None:
    heard: list[str] = []
    await asyncio.wait([essential(dies(), "following", heard.append)])
    await asyncio.sleep(0)
    assert heard == ["following ended: ValueError('no good')"]


async def test_one_that_is_cancelled_has_not_failed() -> None:
    heard: list[str] = []
    task = essential(waits(), "following", heard.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert heard == []


async def test_a_watched_task_has_a_name_and_tells_its_error_or_none() -> None:
    heard: list[BaseException | None] = []
    task = watched(returns(), "commit", heard.append)
    await asyncio.wait([task, watched(dies(), "share", heard.append)])
    await asyncio.sleep(0)
    assert task.get_name() == "commit"
    assert heard[0] is None and isinstance(heard[1], ValueError)


async def test_an_owner_ends_its_tasks_those_that_they_start_and_those_that_come_too_late() -> None:
    tasks = Tasks()

    async def ends_late() -> None:
        try:
            await waits()
        finally:
            tasks.own(asyncio.create_task(waits()))

    first = tasks.own(asyncio.create_task(ends_late()))
    await tasks.own(asyncio.create_task(returns()))
    before = asyncio.all_tasks() - {first}
    await tasks.close()
    assert first.cancelled() and asyncio.all_tasks() == before
    late = tasks.own(asyncio.create_task(waits()))
    await asyncio.wait([late], timeout=HANG_S)
    assert late.cancelled()
