"""What nobody takes for long: people hear of it once, and it holds up nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gantry.client.admin import Admin
from gantry.client.producer import Producer
from gantry.clock import SystemClock
from gantry.errors import UnreachableError
from gantry.guarantee import migration
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import POSTGRESQL
from gantry.guarantee.idle import IdleLimited
from gantry.guarantee.people import Teller, TellingRules
from gantry.guarantee.resending import Resender, ResendRules
from gantry.guarantee.resendservice import ClockError, ResendService, ResendServiceSettings
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Query
from gantry.guarantee.webhook import Webhook
from gantry.model.message import Message
from testkit.clusterplay import running_cluster
from testkit.guaranteeshop import SAY, Ahead, Stubs
from testkit.mailserver import hook_server
from testkit.patience import HANG_S
from testkit.postgres import running_postgres

SECRET = "0123456789abcdef-secret"
LIMITS = ResendRules(backoff_s=60.0, measure_s=0.0)


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    made = Stubs(tmp_path / "stubs.db")
    made.declare("packing")
    made.declare("packing", topic="Returns")
    return made


@asynccontextmanager
async def without(
    tmp_path: Path, stubs: Stubs, clock: Ahead, patch: pytest.MonkeyPatch, topic: str
) -> AsyncIterator[Resender]:
    """A resend process of a cluster that takes no message of a topic until `patch` is undone."""
    async with (
        running_cluster(tmp_path / "brokers") as cluster,
        Producer("resend", nameserver=cluster.nameserver) as producer,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        send = producer.send

        async def refuse(message: Message, **more: Any) -> object:
            if message.topic == topic:
                raise UnreachableError(f"no broker of {topic} answers")
            return await send(message, **more)

        patch.setattr(producer, "send", refuse)
        yield Resender(stubs.database, SAY, producer, admin, clock, LIMITS)


async def test_people_hear_once_of_what_no_broker_takes_for_long_and_its_attempts_stay(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Ahead()
    stubs.write("m1", "m2", due_ms=clock.now_ms())
    async with without(tmp_path, stubs, clock, monkeypatch, "Orders") as resender, hook_server() as hook:
        people = Teller(stubs.database, SAY, [Webhook(hook.url, SECRET)], clock, LIMITS, TellingRules())
        told = []
        for _ in range(40):  # four hours
            clock.ms += 360_000
            assert (await resender.one_pass()).postponed == 2
            told.append(await people.one_pass(["packing"]))
        assert sum(told) == 2 and sum(told[:9]) == 0, told
        assert stubs.ask("SELECT MAX(resends - resends_before) FROM guarantee_delivery") == [(0,)]
        monkeypatch.undo()
        clock.ms += 60_000
        assert (await resender.one_pass()).sent == 2
        assert stubs.ask("SELECT DISTINCT told_at_ms, tell_after_ms FROM guarantee_delivery") == [(None, 0)]


async def test_a_topic_that_no_broker_takes_holds_up_no_other_topic_of_its_group(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.write(*(f"m{number}" for number in range(40)), due_ms=1)
    stubs.write("r1", "r2", topic="Returns", due_ms=2)
    async with without(tmp_path, stubs, Ahead(), monkeypatch, "Orders") as resender:
        counts = await resender.one_pass()
        assert counts.sent == 2 and 0 < counts.postponed < 40
        seen = "SELECT COUNT(*) FROM guarantee_delivery WHERE resends > 0 AND message_id LIKE 'm%'"
        while stubs.ask(seen) != [(40,)]:  # each has its turn
            before = stubs.ask(seen)
            await resender.one_pass()
            assert stubs.ask(seen) > before


@pytest.mark.parametrize("days", [3, -3])
async def test_a_process_whose_clock_is_far_from_the_database_s_says_so_and_touches_nothing(
    stubs: Stubs, days: int
) -> None:
    clock = Ahead()
    clock.ms = days * 86_400_000
    stubs.write("m1", due_ms=SystemClock().now_ms() + 3_600_000)
    service = ResendService(stubs.database, SAY, (), ResendServiceSettings("127.0.0.1:1", every_s=0.0), clock)
    for one_pass in (service.resend, service.tell):
        with pytest.raises(ClockError, match=r"259\d\d\d s (ahead of|behind) that of the database; correct the one"):
            await one_pass()
    assert stubs.ask("SELECT resends, tell_after_ms FROM guarantee_delivery") == [(0, 0)]


async def test_a_process_that_stands_still_in_a_transaction_holds_up_the_others_for_a_limited_time() -> None:
    with running_postgres() as server:
        connect = partial(psycopg.connect, server.database())
        with closing(connect()) as connection:
            migration.install(connection, POSTGRESQL, 0)
        say, database = statements(POSTGRESQL, "named"), BlockingDatabase(connect)
        (text,) = say.idle_limit
        values = {"consumer_group": "packing", "topic": "Orders", "broker": "b", "queue_id": 0, "consumed_to": 1}
        has_lock, goes_on = threading.Event(), threading.Event()

        def stands_still() -> Any:
            yield Query(say.progress, values)
            has_lock.set()
            goes_on.wait(HANG_S)
            yield Query(say.progress, values)

        def works() -> Any:
            return (yield Query(say.progress, values)).changed

        still = asyncio.create_task(IdleLimited(database, (text.replace("'60s'", "'1s'"),)).run(stands_still()))
        try:
            assert await asyncio.to_thread(has_lock.wait, HANG_S)
            assert await asyncio.wait_for(IdleLimited(database, say.idle_limit).run(works()), HANG_S) == 1
        finally:
            goes_on.set()
            with pytest.raises(psycopg.Error):  # the connection was closed, or it says why
                await still
