"""Values that are asked for again, while servers are silent."""

from __future__ import annotations

import asyncio

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.gateway import brokers
from gantry.gateway.brokers import Fresh
from testkit.turning import until


async def test_only_the_first_call_waits_for_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_PATIENCE_S", 0.05)
    asked: list[asyncio.Future[int]] = []

    async def ask(name: str) -> int:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    async def answered(value: int) -> int:
        call = asyncio.ensure_future(fresh.get("a"))
        await until(lambda: asked and not asked[-1].done())
        asked[-1].set_result(value)
        return await call

    fresh = Fresh(ask, fresh_s=0.0)
    assert await answered(1) == 1
    assert await fresh.get("a") == 1 and len(asked) == 2
    monkeypatch.setattr(brokers, "_PATIENCE_S", 3600.0)
    assert await fresh.get("a") == 1 and len(asked) == 2, "one request is under way, and nobody waits for it"
    asked[-1].set_exception(OutcomeUnknownError("no answer"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await fresh.get("a") == 1
    await asyncio.sleep(0)
    assert len(asked) == 3, "it is asked again, and it is hardly waited for"
    asked[-1].set_result(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await answered(3) == 3


async def test_an_answer_that_always_comes_late_counts_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[asyncio.Future[int]] = []

    async def ask(name: str) -> int:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    fresh = Fresh(ask, fresh_s=0.0)
    first = asyncio.ensure_future(fresh.get("a"))
    await until(lambda: asked)
    asked[0].set_result(1)
    assert await first == 1
    monkeypatch.setattr(brokers, "_PATIENCE_S", 0.01)
    for value in (2, 3):
        assert await fresh.get("a") == value - 1, "nobody waits so long for a new one"
        asked[-1].set_result(value)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await fresh.get("a") == 3


async def test_an_answer_from_before_a_change_does_not_replace_that_from_after_it() -> None:
    asked: list[asyncio.Future[int]] = []

    async def ask(name: str) -> int:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    fresh = Fresh(ask, fresh_s=0.0)
    old = asyncio.ensure_future(fresh.get("a"))
    await until(lambda: len(asked) == 1)
    fresh.forget("a")
    new = asyncio.ensure_future(fresh.get("a"))
    await until(lambda: len(asked) == 2)
    asked[1].set_result(2)
    assert await new == 2
    asked[0].set_result(1)
    assert await old == 1
    silent = asyncio.ensure_future(fresh.get("a"))
    await until(lambda: len(asked) == 3)
    asked[2].set_exception(OutcomeUnknownError("no answer"))
    assert await silent == 2
