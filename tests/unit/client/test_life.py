from __future__ import annotations

import asyncio

import pytest

from gantry.client.life import Life, cancelled


class BrokenError(Exception):
    pass


async def breaking() -> None:
    raise BrokenError("a task that broke")


async def lasting() -> None:
    await asyncio.Event().wait()


def test_who_waits_is_told_what_broke_and_is_woken() -> None:
    async def play() -> None:
        woken: list[bool] = []
        life = Life("g", lambda: woken.append(life.is_over))
        life.begin()
        life.spawn(breaking(), "t")
        with pytest.raises(BrokenError):
            await life.wait()
        assert woken == [True], "when it looks, the life is over"
        with pytest.raises(BrokenError):
            life.check()

    asyncio.run(play())


def test_only_what_broke_first_counts_and_an_end_comes_too_late() -> None:
    async def play() -> None:
        woken: list[bool] = []
        life = Life("g", lambda: woken.append(True))
        life.begin()
        await asyncio.gather(*(life.spawn(breaking(), "t") for _ in range(2)), return_exceptions=True)
        life.end()
        with pytest.raises(BrokenError):
            life.check()
        assert woken == [True]

    asyncio.run(play())


def test_a_cancelled_task_breaks_nothing() -> None:
    async def play() -> None:
        life = Life("g")
        life.begin()
        task = life.spawn(lasting(), "t")
        await cancelled([task])
        assert task.cancelled()
        assert not life.is_over
        life.end()
        await life.wait()
        assert life.is_over

    asyncio.run(play())


def test_a_life_that_never_began_may_end() -> None:
    life = Life("g")
    life.end()
    assert not life.is_over
