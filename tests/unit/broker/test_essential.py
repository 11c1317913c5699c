"""A task that a broker cannot do without."""

from __future__ import annotations

import asyncio

from gantry.broker.essential import essential


async def dies() -> None:
    raise ValueError("no good")


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
