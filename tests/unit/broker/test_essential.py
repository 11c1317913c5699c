"""A task that a broker cannot do without."""

from __future__ import annotations

import asyncio

from gantry.broker.essential import essential


async def dies() -> None:
    raise ValueError("no good")


async def waits() -> None:
    await asyncio.Event().wait()


def test_the_end_of_an_essential_task_is_heard_with_its_reason() -> None:
    async def story() -> list[str]:
        heard: list[str] = []
        await asyncio.wait([essential(dies(), "following", heard.append)])
        await asyncio.sleep(0)
        return heard

    assert asyncio.run(story()) == ["following ended: ValueError('no good')"]


def test_one_that_is_cancelled_has_not_failed() -> None:
    async def story() -> list[str]:
        heard: list[str] = []
        task = essential(waits(), "following", heard.append)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        return heard

    assert asyncio.run(story()) == []
