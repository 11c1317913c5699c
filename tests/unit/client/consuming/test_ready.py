"""Messages that wait to be handed out."""

from __future__ import annotations

import asyncio

from gantry.client.consuming.ready import Ready


async def test_items_come_in_their_order_and_wake_one_task_each() -> None:
    ready: Ready[int] = Ready()
    waiting = [asyncio.ensure_future(ready.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    ready.put(1)
    await waiting[0]
    assert not waiting[1].done() and ready.take() == 1
    ready.put(2)
    ready.put(3)
    await waiting[1]
    assert [ready.take(), ready.take()] == [2, 3]


async def test_a_task_that_finds_nothing_left_waits_on() -> None:
    ready: Ready[int] = Ready()
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.sleep(0)
    ready.put(1)
    assert ready.take() == 1, "taken before the woken task ran"
    await asyncio.sleep(0)
    assert not waiting.done()
    ready.put(2)
    await waiting


async def test_a_task_that_is_cancelled_after_it_was_woken_wakes_the_next_one() -> None:
    ready: Ready[int] = Ready()
    first, second = (asyncio.ensure_future(ready.wait()) for _ in range(2))
    await asyncio.sleep(0)
    ready.put(1)
    first.cancel()
    await second
    assert first.cancelled() and ready.take() == 1


async def test_items_that_are_not_wanted_any_more_are_removed() -> None:
    ready: Ready[int] = Ready()
    for number in range(5):
        ready.put(number)
    ready.keep(lambda number: number % 2 == 0)
    assert list(ready.items) == [0, 2, 4]
