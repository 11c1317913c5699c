"""A producer's transaction that ends inside of its block: neither a stub without its business nor the reverse.

MariaDB rolls a whole transaction back after a deadlock, and the next statement begins another one.  A program may do
the same by hand, or by a driver's own block.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from gantry.guarantee import migration
from gantry.guarantee.dialects import MARIADB, POSTGRESQL, SQLITE, Dialect
from gantry.guarantee.idempotent import Idempotent
from gantry.guarantee.outbox import AsyncOutbox, Outbox, OutboxSettings
from gantry.guarantee.producing import declare
from gantry.guarantee.running import run
from gantry.guarantee.sending import SendingSettings
from gantry.guarantee.statements import statements
from gantry.guarantee.units import AbortedTransactionError, unit
from gantry.model.message import Message
from testkit.mysqlserver import running_mariadb
from testkit.patience import HANG_S
from testkit.postgres import running_postgres

SETTINGS = OutboxSettings(sending=SendingSettings(drain_s=0.01))  # there is no broker
NOWHERE = {"nameserver": "127.0.0.1:1", "group": "shop", "settings": SETTINGS}
STATEMENT = "INSERT INTO orders (name) VALUES ('{}')"
Connect = Callable[[], Any]


def prepared(connection: Any, dialect: Dialect) -> None:
    """The tables, and those of a shop."""
    with closing(connection):
        migration.install(connection, dialect, 0)
        run(declare(statements(dialect, "named"), "Orders", "packing", "retry", 0, "test"), connection)
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE orders (name VARCHAR(20))")
        cursor.execute("CREATE TABLE stock (name VARCHAR(20) PRIMARY KEY, pieces INTEGER)")
        cursor.execute("INSERT INTO stock VALUES ('a', 1), ('b', 1)")
        connection.commit()


def stored(connect: Connect, is_kept: bool = False) -> tuple[list[str], int]:
    """The orders, and how many stubs there are; both are taken away, unless they are to be kept."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM orders ORDER BY name")
        orders = [name for (name,) in cursor.fetchall()]
        cursor.execute("SELECT COUNT(*) FROM guarantee_stub")
        ((stubs,),) = cursor.fetchall()
        for table in () if is_kept else ("orders", "guarantee_delivery", "guarantee_stub"):
            cursor.execute(f"DELETE FROM {table}")
        connection.commit()
    return orders, stubs


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Connect]:
    with running_mariadb() as server:
        connect = partial(server.connect, server.database())
        prepared(connect(), MARIADB)
        yield connect


@contextmanager
def plain(connect: Connect) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with closing(connect()) as connection:
        yield connection, lambda text: connection.cursor().execute(text)


@contextmanager
def session(connect: Connect) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sqlalchemy.create_engine("mariadb+pymysql://", creator=connect, poolclass=sqlalchemy.NullPool)
    with Session(engine) as found:
        yield found, lambda text: found.execute(sqlalchemy.text(text))


class Other:
    """Another process: it locks `b` and then wants `a`, and has done more, so that a deadlock is not its end."""

    def __init__(self, connect: Connect) -> None:
        self.has_b = threading.Event()
        self._connect = connect
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            for number in range(50):
                cursor.execute("INSERT INTO stock VALUES (%s, 0)", (f"other {number}",))
            cursor.execute("UPDATE stock SET pieces = pieces - 1 WHERE name = 'b'")
            self.has_b.set()
            cursor.execute("UPDATE stock SET pieces = pieces - 1 WHERE name = 'a'")
            connection.rollback()

    def join(self) -> None:
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("opened", [plain, session])
def test_after_a_deadlock_that_the_program_caught_nothing_of_the_block_is_stored(mariadb: Connect, opened: Any) -> None:
    errors = (pymysql.OperationalError, sqlalchemy.exc.OperationalError)
    with Outbox("mariadb", mariadb, **NOWHERE) as outbox:  # type: ignore[arg-type]
        with (
            opened(mariadb) as (connection, execute),
            pytest.raises(AbortedTransactionError, match="repeat the whole block"),
            outbox.transaction(connection) as tx,
        ):
            tx.send(Message("Orders", b"sent before"))
            execute(STATEMENT.format("before"))
            execute("UPDATE stock SET pieces = pieces - 1 WHERE name = 'a'")
            other = Other(mariadb)
            assert other.has_b.wait(HANG_S)
            with pytest.raises(errors, match="1213"):
                execute("UPDATE stock SET pieces = pieces - 1 WHERE name = 'b'")
            other.join()
            execute(STATEMENT.format("after"))
            tx.send(Message("Orders", b"sent after"))
        assert stored(mariadb) == ([], 0)


@pytest.mark.parametrize("opened", [plain, session])
def test_a_lock_timeout_undoes_its_statement_only_and_the_program_may_go_on(mariadb: Connect, opened: Any) -> None:
    errors = (pymysql.OperationalError, sqlalchemy.exc.OperationalError)
    with (
        Outbox("mariadb", mariadb, **NOWHERE) as outbox,  # type: ignore[arg-type]
        closing(mariadb()) as other,
        opened(mariadb) as (connection, execute),
    ):
        other.cursor().execute("UPDATE stock SET pieces = 7 WHERE name = 'b'")
        with outbox.transaction(connection) as tx:
            execute("SET SESSION innodb_lock_wait_timeout = 1")
            execute(STATEMENT.format("before"))
            with pytest.raises(errors, match="1205"):
                execute("UPDATE stock SET pieces = 8 WHERE name = 'b'")
            tx.send(Message("Orders", b"x"))
        other.rollback()
    assert stored(mariadb) == (["before"], 1)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Connect]:
    with running_postgres() as server:
        connect = partial(psycopg.connect, server.database())
        prepared(connect(), POSTGRESQL)
        yield connect


def url(connect: Any) -> str:
    return str(connect.args[0]).replace("postgresql://", "postgresql+psycopg://")


def commits(connection: Any) -> Any:
    return connection.commit()


def rolls_back(connection: Any) -> Any:
    return connection.rollback()


def has_a_block_of_its_own(connection: Any) -> Any:
    """As `with connection.transaction()`, `with session.begin()`; it is first, so it would be the whole transaction."""
    begin = connection.begin if hasattr(connection, "begin") else connection.transaction
    with begin():
        connection.execute(sqlalchemy.text(STATEMENT.format("inside")) if hasattr(connection, "begin") else
                           STATEMENT.format("inside"))  # fmt: skip
    raise AbortedTransactionError("the block raises after the inner one")


ERRORS = (AbortedTransactionError, psycopg.ProgrammingError, sqlalchemy.exc.InvalidRequestError)


@pytest.mark.parametrize("ends", [commits, rolls_back, has_a_block_of_its_own])
@pytest.mark.parametrize("kind", ["psycopg", "session", "connection"])
def test_the_end_of_the_transaction_inside_of_the_block_is_an_error(
    postgres: Connect, kind: str, ends: Callable[[Any], Any]
) -> None:
    engine = sqlalchemy.create_engine(url(postgres), poolclass=sqlalchemy.NullPool)
    connection: Any = {"psycopg": postgres, "session": partial(Session, engine), "connection": engine.connect}[kind]()
    with closing(connection), Outbox("postgresql", postgres, **NOWHERE) as outbox:  # type: ignore[arg-type]
        with pytest.raises(ERRORS), outbox.transaction(connection) as tx:
            tx.send(Message("Orders", b"x"))
            ends(connection)
            connection.execute(STATEMENT.format("after") if kind == "psycopg" else
                               sqlalchemy.text(STATEMENT.format("after")))  # fmt: skip
        assert stored(postgres) == ([], 0)
        with outbox.transaction(connection) as tx:
            tx.send(Message("Orders", b"x"))
        assert stored(postgres) == ([], 1)


@pytest.mark.parametrize("kind", ["psycopg", "session", "connection"])
async def test_the_end_of_the_transaction_inside_of_a_block_of_coroutines_is_an_error(
    postgres: Connect, kind: str
) -> None:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(postgres.args[0])  # type: ignore[attr-defined]

    engine = create_async_engine(url(postgres), poolclass=sqlalchemy.NullPool)
    if kind == "connection":
        connection: Any = await AsyncConnection(engine).start()
    else:
        connection = await connect() if kind == "psycopg" else AsyncSession(engine)
    async with AsyncOutbox("postgresql", connect, **NOWHERE) as outbox:  # type: ignore[arg-type]
        with pytest.raises(ERRORS):
            async with outbox.transaction(connection) as tx:
                tx.send(Message("Orders", b"x"))
                text = STATEMENT.format("before")
                await connection.execute(text if kind == "psycopg" else sqlalchemy.text(text))
                await connection.rollback()
        async with outbox.transaction(connection) as tx:
            tx.send(Message("Orders", b"x"))
    await connection.close()
    assert stored(postgres) == ([], 1)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_effect_and_the_messages_that_it_sends_are_stored_together(postgres: Connect, is_async: bool) -> None:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(postgres.args[0])  # type: ignore[attr-defined]

    guard, text = Idempotent("packing", "postgresql"), STATEMENT.format("packed")
    queue = SimpleNamespace(topic="Orders", broker_name="b", queue_id=0)
    message = SimpleNamespace(message_id=f"chained {is_async}", queue=queue, queue_offset=1)

    def handle(outbox: Outbox, fails: bool) -> None:
        with closing(postgres()) as connection, guard.effect(connection, message, outbox) as effect:
            if effect:
                connection.execute(text)
                effect.send(Message("Orders", b"x"))
            if fails:
                raise OSError("the service fails")
            if not effect:
                with pytest.raises(RuntimeError, match="only an effect that is carried out"):
                    effect.send(Message("Orders", b"x"))

    async def handle_async(outbox: AsyncOutbox, fails: bool) -> None:
        connection = await connect()
        async with connection, guard.effect_async(connection, message, outbox) as effect:
            if effect:
                await connection.execute(text)
                effect.send(Message("Orders", b"x"))
            if fails:
                raise OSError("the service fails")

    async with AsyncOutbox("postgresql", connect, **NOWHERE) as later:  # type: ignore[arg-type]
        with Outbox("postgresql", postgres, **NOWHERE) as outbox:  # type: ignore[arg-type]
            for fails in (True, False, False):
                with pytest.raises(OSError) if fails else nullcontext():
                    await handle_async(later, fails) if is_async else handle(outbox, fails)
                assert stored(postgres, is_kept=not fails) == (([], 0) if fails else (["packed"], 1))
    stored(postgres)


def test_a_rollback_that_psycopg_would_swallow_is_raised_and_nothing_is_sent(postgres: Connect) -> None:
    outbox = Outbox("postgresql", postgres, **NOWHERE)  # type: ignore[arg-type]
    with outbox, closing(postgres()) as connection:
        with pytest.raises(psycopg.Rollback), outbox.transaction(connection) as tx:
            tx.send(Message("Orders", b"x"))
            raise psycopg.Rollback
        with pytest.raises(AbortedTransactionError, match="connection was lost"), unit(connection):
            connection.close()
    assert stored(postgres) == ([], 0)


def test_sqlite_that_gives_a_transaction_up_inside_of_the_block_stores_nothing_of_it(tmp_path: Path) -> None:
    connect = partial(sqlite3.connect, tmp_path / "shop.db")
    prepared(connect(), SQLITE)
    with closing(connect()) as connection, Outbox("sqlite", connect, **NOWHERE) as outbox:  # type: ignore[arg-type]
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(AbortedTransactionError, match="whole block"), outbox.transaction(connection) as tx:
            connection.execute(STATEMENT.format("before"))
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute("INSERT OR ROLLBACK INTO stock VALUES ('a', 0)")
            connection.execute(STATEMENT.format("after"))
            tx.send(Message("Orders", b"x"))
        assert stored(connect) == ([], 0)
        connection.execute("BEGIN IMMEDIATE")
        with outbox.transaction(connection) as tx:
            connection.execute(STATEMENT.format("good"))
            tx.send(Message("Orders", b"x"))
        assert stored(connect) == (["good"], 1)
