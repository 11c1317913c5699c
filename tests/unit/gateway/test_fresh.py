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
