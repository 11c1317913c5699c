"""The guarantee as services have it: a real broker, a database, effects that are counted in it.

SQLite for programs without a loop, PostgreSQL with coroutines.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.transaction import Rollback
from gantry.clock import SystemClock
from gantry.errors import GantryError
from gantry.guarantee import migration
from gantry.guarantee.consuming import Decision
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import POSTGRESQL, SQLITE
from gantry.guarantee.idempotent import Effect, HeldElsewhereError, Idempotent, idempotent
from gantry.guarantee.outbox import AsyncOutbox, Outbox, OutboxSettings
from gantry.guarantee.producing import declare
from gantry.guarantee.resending import Resender, ResendRules
from gantry.guarantee.sending import SendingSettings
from gantry.guarantee.statements import statements
from gantry.guarantee.transactional import BlockingTransactionalOutbox, TransactionalOutbox, TransactionalRules
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.postgres import running_postgres
from testkit.turning import until

GROUPS = ("packing", "billing")
FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)
SAY = statements(SQLITE, "named")


class Ahead(SystemClock):
    """The machine's clock, put forward."""

    ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ms


class Shop:
    """Orders, and per group the effects that they had, in one database."""

    def __init__(self, path: Path) -> None:
        self.connect = partial(sqlite3.connect, path, timeout=30.0)
        self.database = BlockingDatabase(self.connect)
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migration.install(connection, SQLITE, 0)
            connection.execute("CREATE TABLE orders (name TEXT)")
            connection.execute("CREATE TABLE effects (consumer_group TEXT, body TEXT)")
            connection.commit()
        for group in GROUPS:
            self.database.run_now(declare(SAY, "Orders", group, "retry", 0, "test"))

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(text).fetchall()

    def do(self, text: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute(text)
            connection.commit()

    def states(self) -> dict[str, int]:
        return dict(self.ask("SELECT state, COUNT(*) FROM guarantee_delivery GROUP BY state"))

    def effects(self) -> list[tuple[str, str]]:
        return sorted(self.ask("SELECT consumer_group, body FROM effects"))

    @asynccontextmanager
    async def consuming(self, cluster: Cluster, group: str, failures: int = 0) -> AsyncIterator[None]:
        """A member of a group that has each order's effect; its first calls fail in the middle of the effect."""
        guard, left = Idempotent(group, "sqlite"), [failures]

        def work(message: ReceivedMessage) -> None:
            with closing(self.connect()) as connection, guard.effect(connection, message) as effect:
                if effect:
                    connection.execute("INSERT INTO effects VALUES (?, ?)", (group, message.body.decode()))
                if left[0] > 0:
                    left[0] -= 1
                    raise RuntimeError("the service fails here")

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.to_thread(work, message)

        settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0, concurrency=4)
        client = Consumer(
            group, nameserver=cluster.nameserver, subscription={"Orders": "*"}, listener=handle, settings=settings
        )
        async with client:
            yield


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def ordered(outbox: Outbox, shop: Shop, *names: str, fails: bool = False) -> None:
    with closing(shop.connect()) as connection, outbox.transaction(connection) as tx:
        for name in names:
            connection.execute("INSERT INTO orders VALUES (?)", (name,))
            tx.send(Message("Orders", name.encode()))
        if fails:
            raise RuntimeError("the business fails")


async def test_committed_orders_have_one_effect_in_each_group_and_others_none(tmp_path: Path, shop: Shop) -> None:
    async with running_cluster(tmp_path / "brokers") as cluster:
        make = partial(Outbox, "sqlite", shop.connect, nameserver=cluster.nameserver, group="shop")

        def sell() -> None:
            with make() as outbox:
                for number in range(20):
                    ordered(outbox, shop, f"{number}a", f"{number}b")
                    with pytest.raises(RuntimeError):
                        ordered(outbox, shop, f"{number}x", fails=True)

        await asyncio.to_thread(sell)
        wanted = sorted((group, f"{number}{letter}") for group in GROUPS for number in range(20) for letter in "ab")
        async with shop.consuming(cluster, "packing", failures=3), shop.consuming(cluster, "billing"):
            await until(lambda: shop.states() == {"confirmed": 80})
        assert shop.effects() == wanted
        assert shop.ask("SELECT COUNT(*) FROM guarantee_delivery WHERE queue_offset IS NULL") == [(0,)]
        assert {name for (name,) in shop.ask("SELECT name FROM orders")} == {body for _, body in wanted}


async def test_what_was_never_sent_is_resent_to_each_group_and_only_to_the_one_that_lacks_it(
    tmp_path: Path, shop: Shop
) -> None:
    async with running_cluster(tmp_path / "brokers") as cluster:
        # The outbox knows no broker: nothing is sent, as if its process had died after the commit.
        settings = OutboxSettings(resend_after_s=0.0, sending=SendingSettings(drain_s=0.1))

        def sell() -> None:
            nowhere = "127.0.0.1:1"
            with Outbox("sqlite", shop.connect, nameserver=nowhere, group="shop", settings=settings) as outbox:
                outbox._thread.soon(outbox.sender._tasks[0].cancel)  # type: ignore[union-attr]
                ordered(outbox, shop, "one", "two")

        await asyncio.to_thread(sell)
        clock = Ahead()
        at = {"nameserver": cluster.nameserver}
        async with Producer("resend", **at) as producer, Admin(**at) as admin:
            limits = ResendRules(backoff_s=5.0)
            resender = Resender(shop.database, SAY, producer, admin, clock, limits)
            counts = await resender.one_pass()
            assert (counts.sent, counts.refused, counts.groups) == (4, 0, 2)
            assert (await resender.one_pass()).sent == 0  # claimed, and not due yet
            async with shop.consuming(cluster, "packing"):
                await until(lambda: shop.states() == {"confirmed": 2, "open": 2})
            assert shop.effects() == [("packing", "one"), ("packing", "two")]
            clock.ms = 60_000
            # Copies for billing wait in its retry topic: a backlog, not a loss.
            assert (await resender.one_pass()).sent == 0
            async with shop.consuming(cluster, "billing"):
                await until(lambda: shop.states() == {"confirmed": 4})
        assert shop.effects() == [(group, name) for group in sorted(GROUPS) for name in ("one", "two")]


class Delivery:
    """A copy as a consumer has it."""

    def __init__(self, message_id: str, offset: int = 0) -> None:
        self.message_id = message_id
        self.queue = type("Queue", (), {"topic": "Orders", "broker_name": "broker-a", "queue_id": 0})
        self.queue_offset = offset


def test_a_second_process_waits_for_the_first_and_never_acknowledges_in_between(shop: Shop) -> None:
    guard, message = Idempotent("packing", "sqlite"), Delivery("m1")
    with closing(shop.connect()) as first, closing(sqlite3.connect(shop.connect.args[0], timeout=0.1)) as second:
        with guard.effect(first, message) as effect:
            assert effect
            with pytest.raises(sqlite3.OperationalError), guard.effect(second, message):
                pytest.fail("both have the effect")
        with guard.effect(second, message) as effect:
            assert effect.decision is Decision.DONE


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as server:
        yield server.database()


async def test_coroutines_and_transactional_messages_on_postgresql(tmp_path: Path, postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        migration.install(connection, POSTGRESQL, 0)
        connection.execute("CREATE TABLE effects (body TEXT)")
        connection.commit()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(postgres)

    BlockingDatabase(partial(psycopg.connect, postgres)).run_now(
        declare(statements(POSTGRESQL, "named"), "Orders", "packing", "retry", 0, "test")
    )
    guard = Idempotent("packing", "postgresql")

    async def handle(message: ReceivedMessage) -> None:
        async with await connect() as session, guard.effect_async(session, message) as effect:
            if effect:
                await session.execute("INSERT INTO effects VALUES (%s)", (message.body.decode(),))

    def count(text: str) -> int:
        with psycopg.connect(postgres) as asked:
            ((found,),) = asked.execute(text).fetchall()
            return int(found)

    async with running_cluster(tmp_path, transactions__check_interval_s=0.2, transactions__immunity_s=0.1) as cluster:
        at = {"nameserver": cluster.nameserver}
        rules = TransactionalRules(running_max_s=0.5)
        async with (
            AsyncOutbox("postgresql", connect, group="shop", **at) as outbox,
            TransactionalOutbox("postgresql", connect, group="exact", rules=rules, **at) as exact,
            Consumer("packing", subscription={"Orders": "*"}, listener=handle, settings=FIRST, **at),
        ):
            async with await connect() as session:
                async with outbox.transaction(session) as tx:
                    tx.send(Message("Orders", b"plain"), key="customer")
                async with exact.transaction(session, Message("Orders", b"half")):
                    pass
                with pytest.raises(RuntimeError):
                    async with exact.transaction(session, Message("Orders", b"never")):
                        raise RuntimeError("the business fails")
                with pytest.raises(psycopg.errors.CheckViolation, match="declare_the_consumer_groups_of_this_topic"):
                    async with outbox.transaction(session) as tx:
                        tx.send(Message("Unknown", b"nobody"))
            await until(lambda: count("SELECT COUNT(*) FROM guarantee_delivery WHERE state = 'confirmed'") == 2)
    assert count("SELECT COUNT(*) FROM effects WHERE body IN ('plain', 'half')") == 2
    assert count("SELECT COUNT(*) FROM effects") == 2


async def test_an_effect_that_sends_messages_and_its_effect_happen_together_and_once(
    tmp_path: Path, shop: Shop
) -> None:
    """Orders are packed, and packing sends a parcel for billing; it fails at first, after it has sent."""
    shop.do("DELETE FROM guarantee_group")
    for topic, group in (("Orders", "packing"), ("Parcels", "billing")):
        shop.database.run_now(declare(SAY, topic, group, "retry", 0, "test"))
    failures = [3]

    def pack(message: ReceivedMessage, connection: sqlite3.Connection, effect: Effect) -> None:
        connection.execute("INSERT INTO effects VALUES ('packing', ?)", (message.body.decode(),))
        effect.send(Message("Parcels", message.body), key="customer")
        if failures[0] > 0:
            failures[0] -= 1
            raise RuntimeError("the service fails here")

    def bill(message: ReceivedMessage, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO effects VALUES ('billing', ?)", (message.body.decode(),))

    async with running_cluster(tmp_path / "brokers") as cluster:
        at = {"nameserver": cluster.nameserver}
        make = partial(Consumer, settings=FIRST, **at)
        with Outbox("sqlite", shop.connect, group="shop", **at) as outbox:  # type: ignore[arg-type]
            packing = idempotent(Idempotent("packing", "sqlite"), shop.connect, outbox)(pack)
            billing = idempotent(Idempotent("billing", "sqlite"), shop.connect)(bill)
            async with (
                make("packing", subscription={"Orders": "*"}, listener=packing),
                make("billing", subscription={"Parcels": "*"}, listener=billing),
            ):
                await asyncio.to_thread(ordered, outbox, shop, "one", "two", "three")
                await until(lambda: shop.states() == {"confirmed": 6})
    assert shop.effects() == [(group, name) for group in sorted(GROUPS) for name in ("one", "three", "two")]
    assert shop.ask("SELECT COUNT(*) FROM guarantee_stub") == [(6,)]


class Unanswered(sqlite3.Connection):
    """Its COMMIT is carried out, and the answer is lost."""

    def commit(self) -> None:
        super().commit()
        raise sqlite3.OperationalError("the answer is lost")


async def test_transactional_messages_of_a_program_without_a_loop(tmp_path: Path, shop: Shop) -> None:
    ended = threading.Event()
    rules = TransactionalRules(running_max_s=0.5)
    make = partial(BlockingTransactionalOutbox, "sqlite", shop.connect, group="exact", rules=rules)

    def sell(nameserver: str) -> None:
        with make(nameserver=nameserver) as outbox:

            def order(name: str, error: Exception | None = None, topic: str = "Orders", **kind: Any) -> None:
                message = Message(topic, name.encode())
                with closing(shop.connect(**kind)) as connection, outbox.transaction(connection, message):
                    connection.execute("INSERT INTO orders VALUES (?)", (name,))
                    if error is not None:
                        raise error

            order("good")
            order("taken back", Rollback())
            with pytest.raises(RuntimeError, match="business"):
                order("fails", RuntimeError("the business fails"))
            with pytest.raises(sqlite3.IntegrityError, match="declare_the_consumer_groups_of_this_topic"):
                order("nobody", topic="Unknown")
            with pytest.raises(sqlite3.OperationalError, match="answer is lost"):
                order("answer lost", factory=Unanswered)
            delayed = Message("Orders", b"", delay_s=1)
            with pytest.raises(ValueError, match="delayed"), outbox.transaction(None, delayed):
                pytest.fail("its stub could not be written")
            assert ended.wait(HANG_S)  # the checker is asked meanwhile
        with pytest.raises(RuntimeError, match="not open"):
            order("too late")

    async with running_cluster(
        tmp_path / "brokers", transactions__check_interval_s=0.2, transactions__immunity_s=0.1
    ) as cluster:
        selling = asyncio.create_task(asyncio.to_thread(sell, cluster.nameserver))
        async with shop.consuming(cluster, "packing"), shop.consuming(cluster, "billing"):
            try:
                await until(lambda: shop.states() == {"confirmed": 4} or selling.done())
            finally:
                ended.set()
                await selling
    assert shop.effects() == [(group, name) for group in sorted(GROUPS) for name in ("answer lost", "good")]
    assert shop.ask("SELECT name FROM orders ORDER BY name") == [("answer lost",), ("good",)]


async def test_a_business_that_outlasts_a_check_is_sent_by_a_resend_and_raises_nothing(
    tmp_path: Path, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    rules = TransactionalRules(running_max_s=0.0, resend_after_s=0.0)
    async with running_cluster(
        tmp_path / "brokers", transactions__check_interval_s=0.2, transactions__immunity_s=0.1
    ) as cluster:
        at = {"nameserver": cluster.nameserver}
        make = partial(BlockingTransactionalOutbox, "sqlite", shop.connect, group="exact", rules=rules, **at)

        def sell() -> None:
            late = Message("Orders", b"late")
            with make() as outbox, make() as other, closing(shop.connect()) as sql, outbox.transaction(sql, late):
                # The other member sees no stub.
                asyncio.run(until(lambda: other._halves.producer.check_counts.rolled_back))
                sql.execute("INSERT INTO orders VALUES ('late')")

        await asyncio.to_thread(sell)
        assert "is sent by a resend, its half was rolled back" in caplog.text
        assert shop.states() == {"open": 2}
        async with Producer("resend", **at) as producer, Admin(**at) as admin:
            counts = await Resender(shop.database, SAY, producer, admin, SystemClock(), ResendRules()).one_pass()
        assert counts.sent == 2
        async with shop.consuming(cluster, "packing"), shop.consuming(cluster, "billing"):
            await until(lambda: shop.states() == {"confirmed": 2})
    assert shop.effects() == [("billing", "late"), ("packing", "late")]


def test_errors_name_what_to_do(shop: Shop) -> None:
    assert issubclass(HeldElsewhereError, GantryError)
    with pytest.raises(ValueError, match="there is no dialect 'oracle'"):
        Idempotent("packing", "oracle")
