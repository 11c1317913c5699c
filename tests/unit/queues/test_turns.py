"""Changes of one queue, one at a time: a change that ends, fails or is cancelled leaves its turn to the next."""

from __future__ import annotations

import asyncio

import pytest

from gantry.queues.table import _Alone, _Turn


async def test_the_next_change_begins_when_the_one_before_ended_or_failed_and_nothing_is_left() -> None:
    turns: dict[str, _Turn] = {}
    forgotten: list[str] = []
    with pytest.raises(ValueError, match="of the change"):
        async with _Alone(turns, "tea", forgotten.append):
            raise ValueError("of the change")
    async with asyncio.timeout(30), _Alone(turns, "tea", forgotten.append):
        assert turns["tea"].callers == 1
    assert forgotten == ["tea", "tea"] and not turns


async def test_a_change_that_waits_begins_when_the_one_before_has_ended() -> None:
    turns: dict[str, _Turn] = {}
    begun: list[str] = []

    async def change() -> None:
        async with _Alone(turns, "tea", lambda name: None):
            begun.append("second")

    async with _Alone(turns, "tea", lambda name: None):
        waiting = asyncio.ensure_future(change())
        await asyncio.sleep(0)
        assert turns["tea"].callers == 2 and not begun
    async with asyncio.timeout(30):
        await waiting
    assert begun == ["second"] and not turns


async def test_a_change_that_is_cancelled_while_it_waits_is_not_waited_for() -> None:
    turns: dict[str, _Turn] = {}

    async def change() -> None:
        async with _Alone(turns, "tea", lambda name: None):
            raise AssertionError("the first one has the turn")

    async with _Alone(turns, "tea", lambda name: None):
        waiting = asyncio.ensure_future(change())
        await asyncio.sleep(0)
        assert turns["tea"].callers == 2
        waiting.cancel()
        await asyncio.wait({waiting})
        assert turns["tea"].callers == 1
    assert not turns, "else every queue that was ever changed is kept"


async def test_who_changes_another_queue_waits_for_nobody() -> None:
    turns: dict[str, _Turn] = {}
    async with asyncio.timeout(30):
        async with _Alone(turns, "tea", lambda name: None), _Alone(turns, "coffee", lambda name: None):
            assert turns.keys() == {"tea", "coffee"}
    assert not turns
