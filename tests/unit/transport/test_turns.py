"""What is called at the end of a turn, and what becomes of it when one of it raises."""

from __future__ import annotations

import asyncio

import pytest

from gantry.transport.turns import Turns, TurnTime


async def test_without_a_turn_the_loop_calls() -> None:
    called = asyncio.Event()
    Turns().soon(called.set)
    assert not called.is_set()
    await asyncio.sleep(0)
    assert called.is_set()


async def test_a_turn_calls_in_order_at_its_end_and_what_that_asks_for_too() -> None:
    turns, calls = Turns(), list[str]()
    turns.begin()
    turns.soon(lambda: (calls.append("first"), turns.soon(lambda: calls.append("third")))[0])
    turns.soon(lambda: calls.append("second"))
    assert calls == []
    turns.end()
    assert calls == ["first", "second", "third"]


async def test_what_comes_behind_a_call_that_raises_is_called_all_the_same() -> None:
    turns, calls = Turns(), list[str]()

    def fails() -> None:
        raise ValueError("a bug")

    turns.begin()
    turns.soon(fails)
    turns.soon(lambda: calls.append("second"))
    with pytest.raises(ValueError, match="a bug"):
        turns.end()
    await asyncio.sleep(0)
    assert calls == ["second"]
    turns.soon(lambda: calls.append("of no turn"))
    await asyncio.sleep(0)
    assert calls == ["second", "of no turn"]


async def test_a_turn_has_time_for_some_milliseconds_of_work_and_the_next_one_again() -> None:
    now = [10.0]
    time = TurnTime(lambda: now[0], 0.005)
    assert not time.is_over()
    now[0] += 0.004
    assert not time.is_over()
    now[0] += 0.002
    assert time.is_over() and time.is_over()
    await asyncio.sleep(0)
    assert not time.is_over()
