from __future__ import annotations

import asyncio

import pytest

from gantry.client.admin import Admin
from gantry.client.lifecycle import ConsumerLifecycle, cancelled
from gantry.client.producer import Producer
from gantry.client.pullconsumer import PullConsumer
from gantry.client.puller import Puller
from testkit.onequeue import member
from testkit.scripted import ScriptedCluster


class BrokenError(Exception):
    pass


async def breaking() -> None:
    raise BrokenError("a task that broke")


async def lasting() -> None:
    await asyncio.Event().wait()


async def test_who_waits_is_told_what_broke_and_is_woken() -> None:
    woken: list[bool] = []
    life = ConsumerLifecycle("g", lambda: woken.append(life.is_over))
    life.begin()
    life.spawn(breaking(), "t")
    with pytest.raises(BrokenError):
        await life.wait()
    assert woken == [True], "when it looks, the life is over"
    with pytest.raises(BrokenError):
        life.check()


async def test_only_what_broke_first_counts_and_an_end_comes_too_late() -> None:
    woken: list[bool] = []
    life = ConsumerLifecycle("g", lambda: woken.append(True))
    life.begin()
    await asyncio.gather(*(life.spawn(breaking(), "t") for _ in range(2)), return_exceptions=True)
    life.end()
    with pytest.raises(BrokenError):
        life.check()
    assert woken == [True]


async def test_a_cancelled_task_breaks_nothing() -> None:
    life = ConsumerLifecycle("g")
    life.begin()
    task = life.spawn(lasting(), "t")
    await cancelled([task])
    assert task.cancelled()
    assert not life.is_over
    life.end()
    await life.wait()
    assert life.is_over


def test_a_life_that_never_began_may_end() -> None:
    life = ConsumerLifecycle("g")
    life.end()
    assert not life.is_over


async def test_a_second_start_is_an_error_and_not_a_second_set_of_tasks() -> None:
    async with ScriptedCluster() as cluster:
        for client in (
            member(cluster),  # type: ignore[arg-type]
            Producer("p", nameserver=cluster.nameserver),
            PullConsumer("g", nameserver=cluster.nameserver),
            Puller("g", nameserver=cluster.nameserver),
            Admin(nameserver=cluster.nameserver),
        ):
            async with client:
                before = asyncio.all_tasks()
                with pytest.raises(AssertionError, match="start\\(\\) was called before"):
                    await client.start()
                assert not asyncio.all_tasks() - before


async def test_a_consumer_that_broke_says_so_where_its_block_ends() -> None:
    async with ScriptedCluster() as cluster:
        with pytest.raises(BrokenError):
            async with member(cluster) as consumer:  # type: ignore[arg-type]
                await asyncio.wait([consumer._life.spawn(breaking(), "t")])
        with pytest.raises(KeyError):
            async with member(cluster) as consumer:  # type: ignore[arg-type]
                consumer._life.spawn(breaking(), "t")
                raise KeyError
