"""The order in which the parts of a client begin and end; `test_starts_and_stops` has all clients with their parts."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.lifecycle import Lifecycle
from gantry.transport.tasks import cancelled
from testkit.onequeue import OneQueue, member
from testkit.patience import HANG_S
from testkit.turning import until


class BrokenError(Exception):
    pass


async def breaking() -> None:
    raise BrokenError("a task that broke")


async def lasting() -> None:
    await asyncio.Event().wait()


class Parts:
    """The parts of a made-up client, each of which notes that it begins or ends; `broken` fails at that."""

    def __init__(self, broken: str = "") -> None:
        self.noted: list[str] = []
        self.broken = broken
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.life = self.made()

    def made(self) -> Lifecycle:
        session, routes = _Part(self, "session"), _Part(self, "routes")
        return Lifecycle(
            "g", session, routes, begin=self.begin, finish=self.finish, wake=lambda: self.note("wake")  # type: ignore[arg-type]
        )

    def note(self, what: str) -> None:
        self.noted.append(what)
        if what == self.broken:
            raise BrokenError(what)

    async def begin(self) -> None:
        self.note("begin")
        self.life.tasks.own(asyncio.create_task(self.work()))
        await asyncio.sleep(0)

    async def work(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.note("task ends")

    async def finish(self) -> None:
        self.note("finish")
        await self.may_finish.wait()


class _Part:
    def __init__(self, parts: Parts, name: str) -> None:
        self._parts = parts
        self._name = name

    def start(self) -> None:
        self._parts.note(f"{self._name} starts")

    async def close(self) -> None:
        self._parts.note(f"{self._name} closes")


BEGINS = ["session starts", "routes starts", "begin"]
ENDS = ["wake", "finish", "task ends", "session closes"]


async def test_parts_begin_and_end_in_order_and_once() -> None:
    parts = Parts()
    await parts.life.start()
    assert parts.noted == BEGINS
    await parts.life.stop()
    assert parts.noted == BEGINS + ENDS
    await parts.life.stop()
    assert parts.noted == [*BEGINS, *ENDS, "session closes"], "to close is all that may be done again"


@pytest.mark.parametrize("broken", BEGINS)
async def test_a_start_that_fails_is_followed_by_a_stop(broken: str) -> None:
    parts = Parts(broken)
    with pytest.raises(BrokenError, match=broken):
        await parts.life.start()
    assert parts.noted == [*BEGINS[: BEGINS.index(broken) + 1], *(one for one in ENDS if one != "task ends")]


async def test_a_finish_that_fails_is_an_error_and_keeps_nothing_open() -> None:
    parts = Parts("finish")
    await parts.life.start()
    with pytest.raises(BrokenError):
        await parts.life.stop()
    assert parts.noted == BEGINS + ENDS


async def test_a_task_that_fails_as_it_ends_keeps_nothing_open() -> None:
    parts = Parts("task ends")
    await parts.life.start()
    await parts.life.stop()
    assert parts.noted == BEGINS + ENDS


async def test_the_session_is_closed_although_the_closing_of_tasks_was_cancelled() -> None:
    """As `asyncio.run` does it with what still runs at its end."""
    parts = Parts()
    await parts.life.start()
    stubborn = asyncio.Event()

    async def lasting_on() -> None:
        try:
            await lasting()
        finally:
            await stubborn.wait()

    parts.life.tasks.own(asyncio.create_task(lasting_on()))
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    stopping = asyncio.ensure_future(parts.life.stop())
    await until(lambda: "task ends" in parts.noted)
    (closing,) = asyncio.all_tasks() - before - {stopping}
    closing.cancel()
    await asyncio.wait([closing])
    assert parts.noted == BEGINS + ENDS
    stubborn.set()
    await asyncio.wait([stopping])


async def test_a_stop_that_is_cancelled_closes_at_once_and_not_beside_another_stop() -> None:
    async with asyncio.timeout(HANG_S):
        parts = Parts()
        parts.may_finish.clear()
        await parts.life.start()
        first, second, third = (asyncio.ensure_future(parts.life.stop()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled() and not {"task ends", "session closes"} & set(parts.noted)
        second.cancel()
        third.cancel()
        await asyncio.wait([second, third])
        await until(lambda: "session closes" in parts.noted)
        assert parts.noted == [*BEGINS, "wake", "finish", "finish", "finish", "task ends", "session closes"]


async def test_a_stop_returns_when_the_other_one_has_closed() -> None:
    async with asyncio.timeout(HANG_S):
        parts = Parts()
        parts.may_finish.clear()
        await parts.life.start()
        first = asyncio.ensure_future(parts.life.stop())
        await asyncio.sleep(0)
        parts.may_finish.set()
        await parts.life.stop()
        assert "session closes" in parts.noted
        await first


async def test_who_waits_is_told_what_broke_and_is_woken() -> None:
    parts = Parts()
    await parts.life.start()
    parts.life.spawn(breaking(), "t")
    with pytest.raises(BrokenError):
        await parts.life.wait()
    assert parts.noted[-1] == "wake"
    assert parts.life.is_over
    with pytest.raises(BrokenError):
        await parts.life.leave(None)
    await parts.life.leave(KeyError())  # an error of the block itself counts more


async def test_only_what_broke_first_counts_and_an_end_comes_too_late() -> None:
    parts = Parts()
    await parts.life.start()
    await asyncio.gather(*(parts.life.spawn(breaking(), "t") for _ in range(2)), return_exceptions=True)
    await parts.life.stop()
    with pytest.raises(BrokenError):
        parts.life.check()
    assert parts.noted.count("wake") == 1


async def test_a_cancelled_task_breaks_nothing() -> None:
    parts = Parts()
    await parts.life.start()
    await cancelled([parts.life.spawn(lasting(), "t")])
    assert not parts.life.is_over
    await parts.life.stop()
    await parts.life.wait()
    assert parts.life.is_over


async def test_a_consumer_that_broke_says_so_where_its_block_ends() -> None:
    async with OneQueue(count=0) as cluster:
        with pytest.raises(BrokenError):
            async with member(cluster) as consumer:
                await asyncio.wait([consumer._life.spawn(breaking(), "t")])
        with pytest.raises(KeyError):
            async with member(cluster) as consumer:
                consumer._life.spawn(breaking(), "t")
                raise KeyError
