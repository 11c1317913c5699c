"""What brokers hear of living clients while another broker, or all name servers, are silent."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gantry.clock import SystemClock
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers, Fresh
from gantry.proxy.caller import Caller
from gantry.proxy.clients import KnownClients
from gantry.proxy.presence import OwnerReports
from gantry.wire.codes import ResponseCode
from testkit.patience import HANG_S

CLIENTS = 100


class TwoBrokers:
    """One answers, the other one never does."""

    def __init__(self) -> None:
        self.session = self
        self.asked = {"good": 0, "silent": 0}
        self.told = asyncio.Event()
        self.silence = asyncio.Event()

    async def masters(self) -> dict[str, str]:
        return {"broker-a": "silent", "broker-b": "good"}

    async def ask(self, address: str, *_: Any) -> None:
        self.asked[address] += 1
        if address == "silent":
            await self.silence.wait()
            raise OutcomeUnknownError("no answer")
        if self.asked["good"] == CLIENTS:
            self.told.set()


async def test_a_silent_broker_takes_no_client_its_leases_at_another_one() -> None:
    brokers, clients = TwoBrokers(), KnownClients()
    for number in range(CLIENTS):
        clients.seen(Caller(f"c{number}"), asyncio.get_running_loop().time()).joined("g")
    reports = OwnerReports(cast(Any, brokers), clients, cast(Any, None))
    async with asyncio.timeout(HANG_S):
        reporting = asyncio.create_task(reports.report())
        await brokers.told.wait()
        brokers.silence.set()
        await reporting
    assert brokers.asked["silent"] < CLIENTS


async def test_the_last_answer_is_used_while_nobody_answers() -> None:
    answers: list[str | Exception] = ["first", UnreachableError("away"), OutcomeUnknownError("away"), "second"]

    async def ask(name: str) -> str:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    fresh = Fresh(ask, fresh_s=0.0)
    assert [await fresh.get("x") for _ in range(4)] == ["first", "first", "first", "second"]


async def test_a_refusal_ends_the_last_answer() -> None:
    answers: list[str | Exception] = [
        "first", RefusedError(ResponseCode.TOPIC_NOT_EXIST, "deleted"), UnreachableError("away")
    ]  # fmt: skip

    async def ask(name: str) -> str:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    fresh = Fresh(ask, fresh_s=0.0)
    assert await fresh.get("x") == "first"
    with pytest.raises(RefusedError):
        await fresh.get("x")
    with pytest.raises(UnreachableError):
        await fresh.get("x")


async def test_a_group_whose_order_nobody_tells_is_not_taken_for_one_without() -> None:
    brokers = Brokers(["127.0.0.1:1"], SystemClock(), lambda connection, command: False, lambda: ())
    try:
        with pytest.raises(UnreachableError):
            await brokers.is_orderly("g")
    finally:
        await brokers.close()
