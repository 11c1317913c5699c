"""A database that is read-only, full or restored from yesterday: a clear error or correct work, and nothing lost."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Producer
from gantry.guarantee import migration
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import POSTGRESQL, SQLITE, Dialect
from gantry.guarantee.idempotent import Idempotent
from gantry.guarantee.producing import OutgoingStub, declare, write_stub
from gantry.guarantee.resending import Resender, ResendRules
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.units import unit
from gantry.model.message import Message
from testkit.clusterplay import Cluster, running_cluster
from testkit.guaranteeshop import Ahead, Stubs
from testkit.postgres import running_postgres
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)
LIMITS = ResendRules(backoff_s=5.0, measure_s=0.0)
TABLES = ("guarantee_stub", "guarantee_delivery", "guarantee_log", "guarantee_progress")
FULL = """
CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
"""


class Patient:
    """A database with the tables, and how it falls ill and recovers."""

    def __init__(self, dialect: Dialect, connect: Callable[[], Any], hurt: Callable[[], Any], heal: Any, says: str):
        self.dialect, self.hurt, self.heal, self.says = dialect, hurt, heal, says
        self.connect = connect
        self.say = statements(dialect, "named")
        self.database = BlockingDatabase(lambda: self.connect())
        with closing(connect()) as connection:
            migration.install(connection, dialect, 0)
        self.do("CREATE TABLE business (name VARCHAR(99))", "CREATE TABLE effects (name VARCHAR(99))")
        self.database.run_now(declare(self.say, "Orders", "packing", "retry", 0, "test"))

    def do(self, *texts: str) -> None:
        with closing(self.connect()) as connection:
            for text in texts:
                connection.cursor().execute(text)
            connection.commit()

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(text)
            return [tuple(row) for row in cursor.fetchall()]

    def order(self, name: str) -> None:
        """A producer's transaction, of which the process dies before it sends."""
        stub = OutgoingStub(name, Message("Orders", b"x" * 100_000))
        with closing(self.connect()) as connection, unit(connection):
            connection.cursor().execute(f"INSERT INTO business VALUES ('{name}')")
            run(write_stub(self.say, stub, 0, 0, "shop"), connection)

    def consume(self, name: str) -> None:
        queue = SimpleNamespace(topic="Orders", broker_name="b", queue_id=0)
        message = SimpleNamespace(message_id=name, queue=queue, queue_offset=0)
        guard = Idempotent("packing", self.dialect.name)
        with closing(self.connect()) as connection, guard.effect(connection, message) as effect:
            if effect:
                connection.cursor().execute(f"INSERT INTO effects VALUES ('{name}')")


@contextmanager
def patient(kind: str, tmp_path: Path) -> Iterator[Patient]:
    path = tmp_path / "shop.db"
    if kind.startswith("sqlite"):
        made = Patient(SQLITE, partial(sqlite3.connect, path), lambda: None, lambda: None, "readonly")

        def full() -> sqlite3.Connection:
            connection = sqlite3.connect(path)
            ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        healthy = made.connect
        sick = full if kind == "sqlite full" else partial(sqlite3.connect, f"file:{path}?mode=ro", uri=True)
        made.says = "full" if kind == "sqlite full" else "readonly"
        made.hurt, made.heal = partial(setattr, made, "connect", sick), partial(setattr, made, "connect", healthy)
        yield made
        return
    with running_postgres() as server:
        address = server.database()
        made = Patient(POSTGRESQL, partial(psycopg.connect, address), lambda: None, lambda: None, "read-only")
        name = made.ask("SELECT current_database()")[0][0]
        if kind == "postgresql read-only":
            made.hurt = partial(made.do, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            off = f"ALTER DATABASE {name} RESET default_transaction_read_only"
            made.heal = partial(made.do, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "COMMIT", off)
        else:
            made.says = "No space left on device"
            fire = "BEFORE INSERT OR UPDATE ON {0} FOR EACH ROW EXECUTE FUNCTION is_full()"
            triggers = [f"CREATE TRIGGER full_{each} {fire.format(each)}" for each in TABLES]
            made.hurt = partial(made.do, FULL, *triggers)
            made.heal = partial(made.do, "DROP FUNCTION is_full CASCADE")
        yield made


@asynccontextmanager
async def resending(cluster: Cluster, database: Any, say: Any, clock: Ahead) -> AsyncIterator[Resender]:
    async with (
        Producer("resend", nameserver=cluster.nameserver) as producer,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        yield Resender(database, say, producer, admin, clock, LIMITS)


@pytest.mark.parametrize("kind", ["sqlite read-only", "sqlite full", "postgresql read-only", "postgresql full"])
async def test_what_a_sick_database_refuses_is_an_error_and_is_done_once_when_it_is_well(
    tmp_path: Path, kind: str
) -> None:
    with patient(kind, tmp_path) as shop:
        shop.order("before")
        async with (
            running_cluster(tmp_path / "brokers") as cluster,
            resending(cluster, shop.database, shop.say, Ahead()) as resender,
        ):
            shop.hurt()
            with pytest.raises((sqlite3.OperationalError, psycopg.OperationalError, psycopg.InternalError)) as caught:
                shop.order("refused")
            assert shop.says in str(caught.value)
            is_full = kind == "sqlite full"  # where there is room in a page, the rest works
            for work in (lambda: resender.one_pass(), lambda: _async(shop.consume, "before")):
                try:
                    await work()
                except (sqlite3.Error, psycopg.Error) as error:
                    assert shop.says in str(error)
                else:
                    assert is_full
            shop.heal()
            assert shop.ask("SELECT name FROM business") == [("before",)]
            sent = (await resender.one_pass()).sent
            assert is_full or sent == 1
        for _ in range(2):
            shop.consume("before")
        assert shop.ask("SELECT name FROM effects") == [("before",)]
        assert shop.ask("SELECT state FROM guarantee_delivery") == [("confirmed",)]


async def _async(work: Callable[[str], None], name: str) -> None:
    work(name)


async def test_a_database_that_is_restored_from_yesterday_has_each_effect_once_again(tmp_path: Path) -> None:
    """Under running processes: what was open then is sent again, what came later is gone with its business."""
    stubs = Stubs(tmp_path / "shop.db")
    stubs.declare("packing")
    say, clock = statements(SQLITE, "named"), Ahead()
    async with running_cluster(tmp_path / "brokers") as cluster:
        consumer = Consumer(
            "packing", nameserver=cluster.nameserver, subscription={"Orders": "*"}, listener=stubs.listener("packing"),
            settings=FIRST,
        )  # fmt: skip
        async with resending(cluster, stubs.database, say, clock) as resender, consumer:
            stubs.write("done-before")
            await resender.one_pass()
            await until(lambda: stubs.states() == {"confirmed": 1})
            stubs.write("done-after")
            with closing(stubs.connect()) as now, closing(sqlite3.connect(tmp_path / "yesterday.db")) as copy:
                now.backup(copy)
            stubs.write("made-after")
            await resender.one_pass()
            await until(lambda: stubs.states() == {"confirmed": 3})
            with closing(stubs.connect()) as connection, closing(sqlite3.connect(tmp_path / "yesterday.db")) as copy:
                copy.backup(connection)
            assert stubs.states() == {"confirmed": 1, "open": 1}
            clock.ms += 60_000
            await resender.one_pass()
            await until(lambda: stubs.states() == {"confirmed": 2})
    assert stubs.effects() == [("packing", "done-after"), ("packing", "done-before")]
