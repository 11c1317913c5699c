"""The guarantee's steps on every kind of connection that services have, over real databases.

A kind opens connections, blocking or not; the same test runs on each.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from gantry.errors import ConfigError
from gantry.guarantee import migration
from gantry.guarantee.consuming import (
    Arrival,
    Decision,
    arrive,
    begin_outside,
    fail_outside,
    finish_outside,
    refuse,
    settle_outside,
)
from gantry.guarantee.dialects import MARIADB, POSTGRESQL, SQLITE, dialect_of
from gantry.guarantee.producing import OutgoingStub, StoredPlace, committed, declare, withdraw, write_places, write_stub
from gantry.guarantee.running import run, run_async
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Query, Steps
from gantry.guarantee.units import AbortedTransactionError, async_unit, unit
from gantry.model.message import Message
from testkit.mysqlserver import running_mariadb
from testkit.postgres import running_postgres

BODY = bytes(range(256))


@dataclass(frozen=True)
class Addresses:
    """Where databases with the tables are."""

    sqlite: str
    postgres: str
    mariadb_port: int
    mariadb: str

    def mysql(self, **more: Any) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.mariadb_port, user="root", database=self.mariadb, charset="utf8mb4", **more
        )

    def url(self, dialect: str, driver: str) -> str:
        if dialect == "postgresql":
            return self.postgres.replace("postgresql://", f"postgresql+{driver}://")
        if dialect == "mariadb":
            return f"mariadb+{driver}://root@127.0.0.1:{self.mariadb_port}/{self.mariadb}?charset=utf8mb4"
        return f"sqlite+{driver}:///{self.sqlite}"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with ExitStack() as stack:
        path = str(tmp_path_factory.mktemp("sqlite") / "tables.db")
        postgres = stack.enter_context(running_postgres()).database()
        server = stack.enter_context(running_mariadb())
        found = Addresses(path, postgres, server.port, server.database())
        opened = ((sqlite3.connect(path), SQLITE), (psycopg.connect(postgres), POSTGRESQL), (found.mysql(), MARIADB))
        for connection, dialect in opened:
            with closing(connection):
                migration.install(connection, dialect, 0)
                run(declare(statements(dialect, "named"), "Orders", "packing", "retry", 0, "test"), connection)
                run(declare(statements(dialect, "named"), "Orders", "billing", "topic", 0, "test"), connection)
                connection.commit()
        yield found


Opened = Callable[[Addresses], Any]
KINDS: dict[str, tuple[str, Opened]] = {
    "sqlite3": ("sqlite", lambda at: sqlite3.connect(at.sqlite)),
    "aiosqlite": ("sqlite", lambda at: aiosqlite.connect(at.sqlite)),
    "sqlalchemy session on sqlite3": ("sqlite", lambda at: Session(_engine(at, "sqlite", "pysqlite"))),
    "sqlalchemy async session on aiosqlite": ("sqlite", lambda at: AsyncSession(_async(at, "sqlite", "aiosqlite"))),
    "psycopg": ("postgresql", lambda at: psycopg.connect(at.postgres)),
    "psycopg async": ("postgresql", lambda at: psycopg.AsyncConnection.connect(at.postgres)),
    "asyncpg": ("postgresql", lambda at: asyncpg.connect(at.postgres)),
    "sqlalchemy session on psycopg": ("postgresql", lambda at: Session(_engine(at, "postgresql", "psycopg"))),
    "sqlalchemy connection on psycopg": ("postgresql", lambda at: _engine(at, "postgresql", "psycopg").connect()),
    "sqlalchemy async session on psycopg": (
        "postgresql", lambda at: AsyncSession(_async(at, "postgresql", "psycopg")),
    ),
    "sqlalchemy async connection on psycopg": (
        "postgresql", lambda at: AsyncConnection(_async(at, "postgresql", "psycopg")).start(),
    ),
    "sqlalchemy async session on asyncpg": (
        "postgresql", lambda at: AsyncSession(_async(at, "postgresql", "asyncpg")),
    ),
    "pymysql": ("mariadb", lambda at: at.mysql()),
    "sqlalchemy session on pymysql": ("mariadb", lambda at: Session(_engine(at, "mariadb", "pymysql"))),
}  # fmt: skip
ON_POSTGRES = [kind for kind, (dialect, _) in KINDS.items() if dialect == "postgresql"]


def _engine(at: Addresses, dialect: str, driver: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(at.url(dialect, driver), poolclass=sqlalchemy.NullPool)


def _async(at: Addresses, dialect: str, driver: str) -> Any:
    return create_async_engine(at.url(dialect, driver), poolclass=sqlalchemy.NullPool)


class Database:
    """A connection of some kind; `unit` is a transaction, in which steps run."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        method = getattr(connection, "commit", None) or connection.execute
        self.is_async = inspect.iscoroutinefunction(method)

    async def each(self, *several: Steps[Any]) -> list[Any]:
        """Run steps in one transaction, and commit."""
        if self.is_async:
            async with async_unit(self.connection):
                return [await run_async(steps, self.connection) for steps in several]
        with unit(self.connection):
            return [run(steps, self.connection) for steps in several]

    async def one(self, steps: Steps[Any]) -> Any:
        (found,) = await self.each(steps)
        return found

    async def close(self) -> None:
        closed = self.connection.close()
        if inspect.isawaitable(closed):
            await closed


async def opened(kind: str, addresses: Addresses) -> Database:
    connection = KINDS[kind][1](addresses)
    return Database(await connection if isinstance(connection, Awaitable) else connection)


def states(text: str = "SELECT consumer_group, state, queue_offset FROM guarantee_delivery") -> Any:
    def steps(message_id: str) -> Steps[list[tuple[object, ...]]]:
        where = f"{text} WHERE message_id = :message_id ORDER BY 1"
        return [tuple(row) for row in (yield Query(where, {"message_id": message_id})).rows]

    return steps


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_goes_its_whole_way_on_every_kind_of_connection(kind: str, addresses: Addresses) -> None:
    dialect = KINDS[kind][0]
    say = statements(dialect_of(dialect), "named")
    database = await opened(kind, addresses)

    def name(number: int) -> str:
        return f"{kind} {number} %s :x é"

    def stub(number: int, *groups: str) -> OutgoingStub:
        message = Message("Orders", BODY, "tag", ("key",), {"who": "100% :sure"})
        return OutgoingStub(name(number), message, "customer", groups)

    def at(number: int, group: str = "packing", offset: int = 7) -> Arrival:
        return Arrival(group, name(number), "Orders", "broker-a", 1, offset)

    try:
        await database.each(
            write_stub(say, stub(1), 10, 20, "shop"), write_stub(say, stub(2, "packing"), 10, 20, "shop"),
            write_stub(say, stub(3), 10, 20, "shop"),
        )  # fmt: skip
        places = [StoredPlace(name(number), "Orders", "broker-a", 1, 7) for number in (2, 1)]
        await database.one(write_places(say, places))
        assert await database.one(states()(name(1))) == [("billing", "open", 7), ("packing", "open", 7)]
        assert await database.one(states()(name(2))) == [("packing", "open", 7)]
        assert await database.one(states()(name(3))) == [("billing", "open", None), ("packing", "open", None)]
        body = states("SELECT message_id, body FROM guarantee_stub")
        assert [bytes(row[1]) for row in await database.one(body(name(1)))] == [BODY]
        assert await database.one(committed(say, name(1))) == "open"
        assert await database.one(committed(say, "nobody")) == ""
        # The effect in the database.
        assert await database.one(arrive(say, at(1), 30, "w")) is Decision.RUN
        assert await database.one(arrive(say, at(1), 30, "w")) is Decision.DONE
        assert await database.one(arrive(say, at(1, "billing"), 30, "w")) is Decision.RUN
        assert not await database.one(withdraw(say, name(1), 30, "shop"))
        assert await database.one(withdraw(say, name(3), 30, "shop"))
        assert await database.one(arrive(say, at(3), 30, "w")) is Decision.DONE
        decided, _ = await database.each(arrive(say, at(2), 30, "w"), refuse(say, at(2), 30, "w"))
        assert decided is Decision.RUN
        assert await database.one(arrive(say, at(2), 30, "w")) is Decision.DONE
        assert await database.one(states()(name(2))) == [("packing", "open", 7)]
        # The effect outside of it.
        await database.one(write_stub(say, stub(4), 10, 20, "shop"))
        assert await database.one(begin_outside(say, at(4), "one", 30, 40, "w")) == (Decision.RUN, "")
        assert await database.one(begin_outside(say, at(4), "two", 39, 50, "w")) == (Decision.LATER, "")
        await database.one(fail_outside(say, at(4), "one"))
        assert await database.one(begin_outside(say, at(4), "two", 40, 50, "w")) == (Decision.RUN, "")
        assert await database.one(begin_outside(say, at(4), "three", 50, 60, "w")) == (Decision.ASK, "two")
        # What was said of an attempt is not true of the next one.
        settle = partial(settle_outside, say, at(4))
        assert await database.one(settle("two", False, "three", 50, 60, "w")) is Decision.RUN
        assert await database.one(settle("two", False, "four", 50, 60, "w")) is Decision.LATER
        assert await database.one(settle("two", True, "four", 50, 60, "w")) is Decision.LATER
        assert not await database.one(finish_outside(say, at(4), "two", 60, "w"))
        assert await database.one(finish_outside(say, at(4), "three", 60, "w"))
        assert await database.one(begin_outside(say, at(4), "five", 70, 80, "w")) == (Decision.DONE, "")
    finally:
        await database.close()


@pytest.mark.parametrize("kind", ON_POSTGRES)
async def test_a_transaction_that_postgresql_has_given_up_is_an_error_and_not_a_commit(
    kind: str, addresses: Addresses
) -> None:
    database = await opened(kind, addresses)

    def wrong() -> Steps[None]:
        yield Query("SELECT nothing FROM nowhere", {})

    errors = (AbortedTransactionError, asyncpg.InFailedSQLTransactionError)
    try:
        with pytest.raises(errors):
            if database.is_async:
                async with async_unit(database.connection):
                    with pytest.raises(Exception, match="nowhere"):
                        await run_async(wrong(), database.connection)
            else:
                with unit(database.connection), pytest.raises(Exception, match="nowhere"):
                    run(wrong(), database.connection)
        assert await database.one(committed(statements(POSTGRESQL, "named"), "nobody")) == ""
    finally:
        await database.close()


@pytest.mark.parametrize(
    "connect",
    [
        lambda at: sqlite3.connect(at.sqlite, isolation_level=None),
        lambda at: psycopg.connect(at.postgres, autocommit=True),
        lambda at: at.mysql(autocommit=True),
        lambda at: Session(_engine(at, "postgresql", "psycopg").execution_options(isolation_level="AUTOCOMMIT")),
        lambda at: sqlalchemy.create_engine(
            at.url("mariadb", "pymysql"), isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
        ).connect(),
    ],
    ids=["sqlite3", "psycopg", "pymysql", "session", "engine"],
)
def test_a_connection_in_autocommit_is_refused(connect: Opened, addresses: Addresses) -> None:
    with closing(connect(addresses)) as connection, pytest.raises(ConfigError, match="autocommit"), unit(connection):
        pytest.fail("each statement would be a transaction by itself")


async def test_a_transaction_around_the_block_is_refused_where_it_would_decide(addresses: Addresses) -> None:
    connection = await asyncpg.connect(addresses.postgres)
    try:
        async with connection.transaction():
            with pytest.raises(ConfigError, match="begin none"):
                async with async_unit(connection):
                    pytest.fail("its end would be no commit")
    finally:
        await connection.close()


def test_a_commit_that_sqlite_refused_leaves_no_transaction_open(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    with closing(sqlite3.connect(path, timeout=0.01)) as writer, closing(sqlite3.connect(path)) as reader:
        writer.execute("CREATE TABLE t (a)")
        writer.execute("INSERT INTO t VALUES (0)")
        writer.commit()
        rows = reader.execute("SELECT a FROM t")
        rows.fetchone()
        reader.execute("BEGIN")
        reader.execute("SELECT a FROM t").fetchone()
        with pytest.raises(sqlite3.OperationalError, match="locked"), unit(writer):
            writer.execute("INSERT INTO t VALUES (1)")
        assert not writer.in_transaction
        reader.rollback()
        with unit(writer):
            writer.execute("INSERT INTO t VALUES (2)")
        assert reader.execute("SELECT a FROM t").fetchall() == [(0,), (2,)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "async " in f"{kind} " or kind == "aiosqlite"])
async def test_what_a_cancelled_rollback_left_is_not_committed_by_the_next_block(
    kind: str, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    say, name = statements(dialect_of(KINDS[kind][0]), "named"), f"left by {kind}"
    database = await opened(kind, addresses)
    is_begun, is_rolling_back = asyncio.Event(), asyncio.Event()

    async def hangs(*_: object) -> None:
        is_rolling_back.set()
        await asyncio.Event().wait()

    async def business() -> None:
        async with async_unit(database.connection):
            stub = OutgoingStub(name, Message("Orders", b"x"))
            await run_async(write_stub(say, stub, 10, 20, "shop"), database.connection)
            is_begun.set()
            await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        if kind == "psycopg async":
            patch.setattr(psycopg.AsyncTransaction, "__aexit__", hangs)
        else:
            patch.setattr(type(database.connection), "rollback", hangs)
        task = asyncio.create_task(business())
        await is_begun.wait()
        task.cancel()
        await is_rolling_back.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    try:
        with contextlib.suppress(Exception):  # it is closed, but for sessions
            await database.one(committed(say, "another"))
    finally:
        await database.close()
    again = await opened(kind, addresses)
    try:
        assert await again.one(committed(say, name)) == ""
    finally:
        await again.close()


async def test_the_second_of_two_consumers_waits_for_the_first(addresses: Addresses) -> None:
    say = statements(POSTGRESQL, "named")
    arrival = Arrival("packing", "twice", "Orders", "broker-a", 1, 1)
    first, second = await opened("psycopg async", addresses), await opened("asyncpg", addresses)
    try:
        async with async_unit(first.connection):
            assert await run_async(arrive(say, arrival, 0, "w"), first.connection) is Decision.RUN
            waiting = asyncio.create_task(second.one(arrive(say, arrival, 0, "w")))
            asking = await psycopg.AsyncConnection.connect(addresses.postgres, autocommit=True)
            async with asking:
                while True:
                    found = await asking.execute("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
                    if await found.fetchone() != (0,):
                        break
            assert not waiting.done()
        assert await waiting is Decision.DONE
    finally:
        await first.close()
        await second.close()
