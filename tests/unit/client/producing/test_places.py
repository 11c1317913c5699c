"""SendPlaces of sends under way."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.producing.places import SendPlaces


async def test_a_place_that_is_given_back_goes_to_the_first_that_waits_and_not_to_a_newcomer() -> None:
    places, loop = SendPlaces(1), asyncio.get_running_loop()
    assert places.take() and not places.take()
    first, second = (asyncio.ensure_future(places.wait(loop.time() + 60.0)) for _ in range(2))
    await asyncio.sleep(0)
    places.give_back()
    assert not places.take(), "it belongs to the first"
    await first
    assert not second.done()
    places.give_back()
    await second
    places.give_back()
    assert places.free == 1


async def test_a_newcomer_waits_behind_one_that_has_its_place_and_did_not_run_yet_though_another_is_free() -> None:
    places, loop = SendPlaces(2), asyncio.get_running_loop()
    order: list[str] = []

    async def caller(name: str) -> None:
        if not places.take():
            await places.wait(loop.time() + 60.0)
        order.append(name)

    assert places.take() and places.take()
    earlier = asyncio.ensure_future(caller("earlier"))
    await asyncio.sleep(0)
    places.give_back()
    places.give_back()
    await caller("later")  # in the same turn
    await earlier
    assert order == ["earlier", "later"]
    assert not places.take()


async def test_a_newcomer_behind_one_that_is_cancelled_as_it_gets_its_place_is_not_left_waiting() -> None:
    places, loop = SendPlaces(2), asyncio.get_running_loop()
    assert places.take() and places.take()
    earlier = asyncio.ensure_future(places.wait(loop.time() + 60.0))
    await asyncio.sleep(0)
    places.give_back()
    places.give_back()
    assert not places.take()
    earlier.cancel()
    async with asyncio.timeout(10.0):
        await places.wait(loop.time() + 60.0)
    places.give_back()
    assert places.free == 2 and places.take()


async def test_without_a_place_in_time_none_is_taken() -> None:
    places, loop = SendPlaces(1), asyncio.get_running_loop()
    assert places.take()
    with pytest.raises(TimeoutError):
        await places.wait(loop.time())
    places.give_back()
    assert places.free == 1 and places.take()


@pytest.mark.parametrize("when", ["waiting", "just got it"])
async def test_a_caller_that_is_cancelled_leaves_its_place_to_the_next(when: str) -> None:
    places, loop = SendPlaces(1), asyncio.get_running_loop()
    assert places.take()
    first, second = (asyncio.ensure_future(places.wait(loop.time() + 60.0)) for _ in range(2))
    await asyncio.sleep(0)
    if when == "just got it":
        places.give_back()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    if when == "waiting":
        places.give_back()
    await second
    places.give_back()
    assert places.free == 1
