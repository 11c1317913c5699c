"""The resend process against real brokers: who gets a copy, and what an attempt costs when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.settings import ProducerSettings
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.guarantee import migration
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import POSTGRESQL
from gantry.guarantee.producing import OutgoingStub, declare, write_stub
from gantry.guarantee.resending import Resender, ResendRules, retry_topic
from gantry.guarantee.statements import statements
from gantry.model.subscription import GroupConfig
from testkit.clusterplay import Cluster, running_cluster
from testkit.guaranteeshop import SAY, Ahead, Stubs, rows
from testkit.patience import HANG_S
from testkit.postgres import running_postgres
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)
# Brokers answer here, however busy the machine is: a send that is given up would be an attempt without a copy.
PATIENT = ProducerSettings(timeout_s=HANG_S, attempt_timeout_s=HANG_S)


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    return Stubs(tmp_path / "stubs.db")


@asynccontextmanager
async def resending(
    cluster: Cluster, stubs: Stubs, clock: Ahead | None = None, **rules: object
) -> AsyncIterator[tuple[Resender, Admin]]:
    async with (
        Producer("resend", nameserver=cluster.nameserver, settings=PATIENT) as producer,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        limits = ResendRules(**{"backoff_s": 5.0, "measure_s": 0.0, **rules})  # type: ignore[arg-type]
        yield Resender(stubs.database, SAY, producer, admin, clock or Ahead(), limits), admin


@pytest.mark.parametrize(("way", "mode"), [("retry", "pull"), ("pop", "pop"), ("topic", "pull")])
async def test_a_copy_reaches_the_group_that_lacks_the_message_by_its_way(
    tmp_path: Path, stubs: Stubs, way: str, mode: str
) -> None:
    stubs.declare("packing", by=way)
    stubs.write("m1", "m2")
    async with running_cluster(tmp_path / "brokers") as cluster:
        others: list[ReceivedMessage] = []
        seen: list[ReceivedMessage] = []
        at = {"nameserver": cluster.nameserver, "subscription": {"Orders": "*"}, "settings": FIRST}
        async with resending(cluster, stubs) as (resender, admin):
            await admin.create_topic("Orders")
            # The other group has read the topic to its end already.
            async with Consumer("billing", listener=stubs.listener("billing", others), **at):  # type: ignore[arg-type]
                counts = await resender.one_pass()
                assert (counts.sent, counts.refused, counts.postponed, counts.failed) == (2, 0, 0, [])
                listener = stubs.listener("packing", seen)
                async with Consumer("packing", listener=listener, mode=mode, **at):  # type: ignore[arg-type]
                    await until(lambda: stubs.states() == {"confirmed": 2})
                if way == "topic":  # the way of groups that read nothing else: everybody gets it
                    await until(lambda: len(others) == 2)
            found = stubs.ask("SELECT DISTINCT copy_topic FROM guarantee_delivery")
            assert found == [(retry_topic("packing", "Orders", way) or "Orders",)]
        assert len(others) == (2 if way == "topic" else 0)
        assert {message.topic for message in seen} == {"Orders"}
        assert [each for each in stubs.effects() if each[0] == "packing"] == [("packing", "m1"), ("packing", "m2")]


async def test_an_orderly_group_gets_a_copy_by_the_topic_and_no_dead_letter(tmp_path: Path, stubs: Stubs) -> None:
    stubs.declare("packing")
    stubs.write("m1")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, admin):
        await admin.create_group(GroupConfig("packing", consume_orderly=True))
        assert (await resender.one_pass()).sent == 1
        assert "%DLQ%packing" not in await admin.topics()
    assert stubs.ask("SELECT copy_topic FROM guarantee_delivery") == [("Orders",)]


async def test_a_group_waits_while_brokers_do_not_say_if_it_is_orderly(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.declare("packing")
    stubs.write("m1")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, admin):
        await admin.create_group(GroupConfig("packing", consume_orderly=True))

        async def fails() -> object:
            raise UnreachableError("a broker is restarted")

        with monkeypatch.context() as patch:
            patch.setattr(admin, "groups", fails)
            counts = await resender.one_pass()
            assert (counts.sent, counts.failed) == (0, ["packing"])
            assert stubs.ask("SELECT resends FROM guarantee_delivery") == [(0,)]
        assert (await resender.one_pass()).sent == 1
    assert stubs.ask("SELECT copy_topic FROM guarantee_delivery") == [("Orders",)]


async def test_groups_that_a_stub_names_itself_and_undeclared_ones_are_resent_too(
    tmp_path: Path, stubs: Stubs
) -> None:
    stubs.write("named", groups=("auditing",))
    stubs.declare("packing")
    stubs.write("declared")
    stubs.do("DELETE FROM guarantee_group")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, _):
        assert (await resender.one_pass()).sent == 2


async def test_the_last_message_of_a_quiet_queue_is_resent_when_the_broker_says_that_the_group_has_passed_it(
    tmp_path: Path, stubs: Stubs
) -> None:
    stubs.declare("packing")
    stubs.write("lost")
    clock = Ahead()
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs, clock) as (resender, admin):
        at = {"nameserver": cluster.nameserver, "subscription": {"Orders": "*"}, "settings": FIRST}
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            placed = await producer.send(Message("Orders", b"lost"))
        stubs.do(
            "UPDATE guarantee_delivery SET copy_topic = 'Orders', broker = 'broker-a', "
            f"queue_id = {placed.queue.queue_id}, queue_offset = {placed.queue_offset}"
        )
        assert (await resender.one_pass()).sent == 0  # a backlog, as far as anybody knows

        async def forgets(message: ReceivedMessage) -> None:
            """A consumer that acknowledges and does nothing: the fault that a resend is for."""

        async with Consumer("packing", listener=forgets, **at):  # type: ignore[arg-type]

            async with asyncio.timeout(HANG_S):
                while all(each.committed <= 0 for each in await admin.progress("packing", "Orders")):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert (await resender.one_pass()).sent == 1


async def test_an_outage_costs_no_attempt_and_a_refusal_does(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.declare("packing")
    stubs.write("m1", "m2")
    clock = Ahead()
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs, clock) as (resender, _):
        answers: list[GantryError] = [UnreachableError("no way"), RefusedError(2, "busy"), RefusedError(13, "illegal")]

        async def fails(*_: object, **__: object) -> object:
            raise answers[0]

        monkeypatch.setattr(resender._producer, "send", fails)
        attempts = "SELECT SUM(resends - resends_before) FROM guarantee_delivery"
        for wanted in (0, 0, 2):
            counts = await resender.one_pass()
            assert (counts.postponed, counts.refused) == ((0, 2) if wanted else (2, 0))
            assert stubs.ask(attempts) == [(wanted,)]
            answers.pop(0)
            clock.ms += 6_000  # one backoff: a postponed message waits no longer each time
        monkeypatch.undo()
        clock.ms += 60_000
        assert (await resender.one_pass()).sent == 2


async def test_a_rearmed_message_stays_rearmed_while_no_broker_takes_it(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.declare("packing")
    stubs.write("m1")
    stubs.log("m1", "packing", "unknown")
    stubs.do("UPDATE guarantee_delivery SET is_rearmed = 1")
    clock = Ahead()
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs, clock) as (resender, _):

        async def fails(*_: object, **__: object) -> object:
            raise UnreachableError("no way")

        with monkeypatch.context() as patch:
            patch.setattr(resender._producer, "send", fails)
            assert (await resender.one_pass()).postponed == 1
        clock.ms += 60_000
        assert (await resender.one_pass()).sent == 1


async def test_while_no_master_is_known_nothing_is_claimed_and_the_error_says_so(tmp_path: Path, stubs: Stubs) -> None:
    stubs.declare("packing")
    stubs.write("m1")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, _):
        await cluster.stop("broker-a")
        await until(lambda: not cluster.server.table.brokers())
        with pytest.raises(UnreachableError, match="nothing is sent again until one has"):
            await resender.one_pass()
    assert stubs.ask("SELECT resends FROM guarantee_delivery") == [(0,)]


async def test_rows_that_are_no_messages_use_up_their_attempts_and_hold_up_nothing(
    tmp_path: Path, stubs: Stubs
) -> None:
    stubs.declare("packing")
    stubs.write("a", "b", "c", "good")
    stubs.do("UPDATE guarantee_stub SET properties = '[1]' WHERE message_id = 'a'")
    stubs.do("UPDATE guarantee_stub SET body = 'text' WHERE message_id = 'b'")
    stubs.do("UPDATE guarantee_stub SET properties = '" + "[" * 100_000 + "' WHERE message_id = 'c'")
    clock = Ahead()
    async with (
        running_cluster(tmp_path / "brokers") as cluster,
        resending(cluster, stubs, clock, resends_max=2) as (resender, _),
    ):
        counts = await resender.one_pass()
        assert (counts.sent, counts.refused) == (1, 3)
        clock.ms += 6_000
        assert (await resender.one_pass()).refused == 3
        clock.ms += 60_000
        assert (await resender.one_pass()).refused == 0
    exhausted = {"consumer_group": "packing", "now_ms": clock.now_ms(), "resends_max": 2, "rows_max": 10}
    assert [row[0] for row in stubs.database.run_now(rows(SAY.exhausted, exhausted))] == ["a", "b", "c"]


async def test_one_group_whose_rows_fail_does_not_stop_the_others(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.declare("billing", "packing")
    stubs.write("m1")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, _):
        claim = resender._claim

        def fails(group: str, *more: object):  # type: ignore[no-untyped-def]
            if group == "billing":
                raise psycopg.errors.DeadlockDetected("deadlock")
            return claim(group, *more)

        monkeypatch.setattr(resender, "_claim", fails)
        counts = await resender.one_pass()
        assert (counts.sent, counts.failed) == (1, ["billing"])


async def test_a_place_that_the_database_did_not_take_is_stored_by_the_next_pass(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.declare("packing")
    stubs.write("m1")
    async with running_cluster(tmp_path / "brokers") as cluster, resending(cluster, stubs) as (resender, _):
        send = resender._producer.send

        async def then_the_database_goes(*args: object, **more: object) -> object:
            result = await send(*args, **more)  # type: ignore[arg-type]
            patch.setattr(stubs.database, "_connect", partial(exec, "raise OSError('the database is away')"))
            return result

        with monkeypatch.context() as patch:
            patch.setattr(resender._producer, "send", then_the_database_goes)
            with pytest.raises(OSError, match="the database is away"):
                await resender.one_pass()
        assert stubs.ask("SELECT resends, queue_offset FROM guarantee_delivery") == [(1, None)]
        assert (await resender.one_pass()).sent == 0
        assert stubs.ask("SELECT resends, queue_offset FROM guarantee_delivery") == [(1, 0)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as server:
        yield server.database()


async def test_resend_processes_side_by_side_send_each_message_once(tmp_path: Path, postgres: str) -> None:
    say, count = statements(POSTGRESQL, "named"), 300
    database = BlockingDatabase(partial(psycopg.connect, postgres))
    with closing(psycopg.connect(postgres)) as connection:
        migration.install(connection, POSTGRESQL, 0)
    database.run_now(declare(say, "Orders", "packing", "retry", 0, "test"))
    for number in range(count):
        stub = OutgoingStub(f"m{number:04}", Message("Orders", b"body"))
        database.run_now(write_stub(say, stub, 0, 0, "shop"))
    async with (
        running_cluster(tmp_path) as cluster,
        Producer("resend", nameserver=cluster.nameserver, settings=PATIENT) as producer,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        limits = ResendRules(backoff_s=600.0, rows_max=count // 2)  # in one pass none can do it all
        several = [Resender(database, say, producer, admin, Ahead(), limits) for _ in range(4)]
        sent = [0] * len(several)
        async with asyncio.timeout(HANG_S):
            while sum(sent) < count:
                passes = await asyncio.gather(*(each.one_pass() for each in several))
                sent = [before + each.sent for before, each in zip(sent, passes, strict=True)]
        assert sum(sent) == count
        assert sum(each.max_offset for each in await admin.progress("packing", "%RETRY%packing")) == count
        assert sum(each > 0 for each in sent) > 1  # they share the work
