"""Transactions as a user of the library has them: a real broker, a real database, producers that come and go."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest

from gantry.cli.main import main
from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Producer
from gantry.client.transaction import (
    Message,
    Outcome,
    Rollback,
    StoredMessage,
    Transaction,
    TransactionProducer,
)
from gantry.errors import RefusedError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster, refuse, stored
from testkit.scriptedtransaction import outcomes
from testkit.turning import until

FROM_FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)


def quick(folder: Path, groups: int = 1, **changes: object) -> AbstractAsyncContextManager[Cluster]:
    """Brokers that ask soon and often."""
    soon: dict[str, object] = {"transactions__check_interval_s": 0.2, "transactions__immunity_s": 0.1}
    return running_cluster(folder, groups, **soon | changes)


class PowerCutError(Exception):
    """The program ends here."""


class Shop:
    """Orders in SQLite; the table says which messages belong to a local transaction that happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[str] = []
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT, message TEXT)")

    def place(self, tx: Transaction, name: str) -> None:
        """The local transaction."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("INSERT INTO orders VALUES (?, ?)", (name, tx.message_id))

    def messages(self) -> list[str]:
        """What has to be delivered."""
        with closing(sqlite3.connect(self.path)) as database:
            return [row[0] for row in database.execute("SELECT message FROM orders ORDER BY message")]

    async def check(self, message: StoredMessage) -> Outcome:
        """The checker."""
        self.asked.append(message.message_id)
        return Outcome.COMMIT if message.message_id in self.messages() else Outcome.ROLLBACK


class Warehouse:
    """Consumes, and remembers every message that came."""

    def __init__(self) -> None:
        self.received: list[str] = []

    async def listen(self, message: object) -> None:
        """One message."""
        self.received.append(message.message_id)  # type: ignore[attr-defined]


@asynccontextmanager
async def consuming(cluster: Cluster) -> AsyncIterator[Warehouse]:
    warehouse = Warehouse()
    async with Consumer(
        "g",
        nameserver=cluster.nameserver,
        subscription={"Orders": "*"},
        listener=warehouse.listen,
        settings=FROM_FIRST,
    ):
        yield warehouse


async def nothing_open(cluster: Cluster) -> None:
    """Until every transaction has its outcome."""
    async with Admin(nameserver=cluster.nameserver) as admin:
        async with asyncio.timeout(HANG_S):
            while await admin.transactions():  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.05)


async def test_rows_and_messages_are_the_same_whatever_happened_in_between(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    async with (
        asyncio.timeout(HANG_S),
        quick(tmp_path, groups=2) as cluster,
        TransactionProducer("shop", shop.check, nameserver=cluster.nameserver) as producer,
    ):
        async with producer.transaction(Message("Orders", b"a")) as tx:
            shop.place(tx, "committed")
        assert tx.is_settled
        async with producer.transaction(Message("Orders", b"b")):
            raise Rollback
        for name in ("before", "after"):
            with pytest.raises(PowerCutError):
                async with producer.transaction(Message("Orders", name.encode())) as tx:
                    if name == "after":
                        shop.place(tx, name)
                    raise PowerCutError
        async with consuming(cluster) as warehouse:
            await nothing_open(cluster)
            await until(lambda: len(warehouse.received) >= 2)
        assert sorted(warehouse.received) == shop.messages()
        assert len(shop.asked) >= 2  # the two that nobody has said the outcome of
        # On a slow machine it is asked again before its answer is there.
        assert producer.check_counts.committed >= 1 and producer.check_counts.rolled_back >= 1


async def at_a_loss(message: StoredMessage) -> Outcome:
    """A checker whose database is away."""
    return Outcome.UNKNOWN


async def test_a_successor_answers_for_a_producer_that_is_gone(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    async with asyncio.timeout(HANG_S), quick(tmp_path, transactions__checks_max=0) as cluster:
        # Whatever it is asked before it goes, it has no answer.
        async with TransactionProducer("shop", at_a_loss, nameserver=cluster.nameserver) as producer:
            entered = [producer.transaction(Message("Orders", b"%d" % n)) for n in range(4)]
            for number, tx in enumerate(entered):
                await tx.__aenter__()
                if number % 2:
                    shop.place(tx, str(number))
        async with TransactionProducer("shop", shop.check, nameserver=cluster.nameserver):
            await nothing_open(cluster)
        assert {tx.message_id for tx in entered} <= set(shop.asked)
        async with consuming(cluster) as warehouse:
            await until(lambda: len(warehouse.received) >= 2)
        assert sorted(warehouse.received) == shop.messages()


async def test_a_broker_that_restarts_asks_again_without_anybody_sending(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    async with (
        asyncio.timeout(HANG_S),
        quick(tmp_path, transactions__immunity_s=2.0) as cluster,
        TransactionProducer("shop", shop.check, nameserver=cluster.nameserver) as producer,
    ):
        with pytest.raises(PowerCutError):
            async with producer.transaction(Message("Orders", b"a")) as tx:
                shop.place(tx, "a")
                raise PowerCutError
        await cluster.stop("broker-a")
        assert shop.asked == []
        await cluster.start("broker-a")
        await nothing_open(cluster)
        async with consuming(cluster) as warehouse:
            await until(lambda: warehouse.received)
        assert warehouse.received == shop.messages()


async def test_a_commit_that_comes_after_the_checker_said_rollback_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    async with (
        asyncio.timeout(HANG_S),
        quick(tmp_path) as cluster,
        TransactionProducer("shop", shop.check, nameserver=cluster.nameserver) as producer,
        TransactionProducer("shop", shop.check, nameserver=cluster.nameserver) as other,
    ):
        with pytest.raises(RefusedError, match="rolled back before"):
            async with producer.transaction(Message("Orders", b"a")):
                await until(lambda: other.check_counts.rolled_back)  # it does not run there


async def test_a_message_waits_for_its_own_time_before_it_is_asked_about(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.db")
    async with (
        asyncio.timeout(HANG_S),
        quick(tmp_path) as cluster,
        TransactionProducer("shop", shop.check, nameserver=cluster.nameserver) as producer,
    ):
        patient = producer.transaction(Message("Orders", b"a"), immunity_s=3600)
        async with patient:
            for number in (1, 2):  # two rounds of checks, at least
                async with producer.transaction(Message("Orders", b"b")) as hasty:
                    hasty.leave()
                await until(lambda: producer.check_counts.rolled_back == number)  # noqa: B023  it waits here
        assert patient.message_id not in shop.asked
        assert patient.is_settled


async def test_an_administrator_sees_what_is_open_and_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def undecided(_: StoredMessage) -> Outcome:
        return Outcome.UNKNOWN

    async with asyncio.timeout(HANG_S), quick(tmp_path, groups=2) as cluster:

        async def gantry(*arguments: str) -> str:
            code = await asyncio.to_thread(main, ["tx", *arguments, "--namesrv", cluster.nameserver])
            assert code == 0, capsys.readouterr().err
            return capsys.readouterr().out

        async with (
            TransactionProducer("shop", undecided, nameserver=cluster.nameserver) as producer,
            Producer("plain", nameserver=cluster.nameserver) as plain,
        ):
            await plain.send(Message("Orders", b"makes the topic"))
            delivered, dropped = (
                producer.transaction(Message("Orders", body, keys=("o-1", "o-2"))) for body in (b"a", b"b")
            )
            for tx in (delivered, dropped):
                await tx.__aenter__()
            rows = json.loads(await gantry("ls", "--output", "json"))
            assert {row["id"] for row in rows} == {delivered.message_id, dropped.message_id}
            row = rows[0]
            named = "id topic producerGroup ageMs checks keys broker logOffset halfOffset state"
            assert list(row) == named.split(), "scripts read these"
            assert (row["topic"], row["producerGroup"], row["keys"], row["state"]) == (
                "Orders",
                "shop",
                "o-1 o-2",
                "open",
            )
            assert json.loads(await gantry("ls", "--group", "other", "--output", "json")) == []
            shown = json.loads(await gantry("show", delivered.message_id, "--output", "json"))
            assert (shown["body"], shown["id"]) == ("a", delivered.message_id)
            assert shown["properties"]["KEYS"] == "o-1 o-2"
            assert "KEYS=o-1 o-2 " in await gantry("show", delivered.message_id)
            await gantry("commit", delivered.message_id)
            await gantry("rollback", dropped.message_id)
            await nothing_open(cluster)
        async with consuming(cluster) as warehouse:
            await until(lambda: len(warehouse.received) >= 2)
        assert delivered.message_id in warehouse.received
        assert dropped.message_id not in warehouse.received


async def test_what_was_given_up_can_be_armed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome.UNKNOWN

    async def checker(_: StoredMessage) -> Outcome:
        return outcome

    async with asyncio.timeout(HANG_S):
        async with (
            quick(tmp_path, transactions__checks_max=2) as cluster,
            TransactionProducer("shop", checker, nameserver=cluster.nameserver) as producer,
            Admin(nameserver=cluster.nameserver) as admin,
        ):
            async with producer.transaction(Message("Orders", b"a")) as tx:
                tx.leave()
            await nothing_open(cluster)
            (given_up,) = await admin.transactions("given-up")
            assert (given_up.id, given_up.state, given_up.checks) == (tx.message_id, "given-up", 2)
            outcome = Outcome.COMMIT
            flags = ["--namesrv", cluster.nameserver]
            assert await asyncio.to_thread(main, ["tx", "rearm", tx.message_id, *flags]) == 0
            await until(lambda: producer.check_counts.committed)
            async with consuming(cluster) as warehouse:
                await until(lambda: warehouse.received == [tx.message_id])


async def test_an_end_that_a_former_master_does_not_take_goes_to_the_new_one() -> None:
    async def ask_later(_: StoredMessage) -> Outcome:
        return Outcome.UNKNOWN

    async with asyncio.timeout(HANG_S):
        async with (
            ScriptedCluster(slaves=1) as cluster,
            TransactionProducer("p", ask_later, nameserver=cluster.nameserver) as producer,
        ):
            cluster.answers["broker-a", RequestCode.SEND_MESSAGE_V2] = stored
            sealed = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, "sealed")
            cluster.answers["broker-a", RequestCode.END_TRANSACTION] = sealed
            async with producer.transaction(Message("orders", b"x")) as tx:
                cluster.leads["broker-a"] = "broker-a/1"
            assert tx.is_settled
            assert outcomes(cluster) == outcomes(cluster, "broker-a/1") == ["8"]
