"""Traps of the guarantee's users: what looks right in a program and would lose a message without any error."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from gantry.errors import ConfigError
from gantry.guarantee import migration
from gantry.guarantee.consuming import Arrival, Decision, arrive
from gantry.guarantee.dialects import SQLITE
from gantry.guarantee.idempotent import Idempotent, idempotent
from gantry.guarantee.producing import OutgoingStub, declare, withdraw, write_stub
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.units import AbortedTransactionError, unit
from gantry.model.message import Message

SAY = statements(SQLITE, "named")
QUEUE = SimpleNamespace(topic="Orders", broker_name="broker-a", queue_id=0)
RECEIVED = SimpleNamespace(message_id="M1", queue=QUEUE, queue_offset=7)


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    """Opens a database with one order for two groups, `packing` and `billing`."""
    found = partial(sqlite3.connect, tmp_path / "shop.db")
    with closing(found()) as connection:
        migration.install(connection, SQLITE, 0)
        connection.execute("CREATE TABLE effects (name TEXT)")
        with unit(connection):
            for group in ("packing", "billing"):
                run(declare(SAY, "Orders", group, "retry", 0, "test"), connection)
            run(write_stub(SAY, OutgoingStub("M1", Message("Orders", b"1")), 10, 20, "shop"), connection)
    return found


def states(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT consumer_group, state FROM guarantee_delivery"))


def test_a_withdrawal_that_comes_too_late_takes_the_message_from_no_group_even_if_it_is_committed(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    with closing(connect()) as connection:
        with unit(connection):
            assert run(arrive(SAY, Arrival("packing", "M1", "Orders", "broker-a", 0, 7), 30, "w"), connection)
        with unit(connection):
            connection.execute("INSERT INTO effects VALUES ('before')")
            assert not run(withdraw(SAY, "M1", 40, "shop"), connection)
            connection.execute("INSERT INTO effects VALUES ('after')")
        assert states(connection) == {"packing": "confirmed", "billing": "open"}
        assert connection.execute("SELECT COUNT(*) FROM effects").fetchone() == (2,)
        with unit(connection):
            late = Arrival("billing", "M1", "Orders", "broker-a", 0, 7)
            assert run(arrive(SAY, late, 50, "w"), connection) is Decision.RUN


def test_a_withdrawal_in_time_is_undone_with_its_transaction(connect: Callable[[], sqlite3.Connection]) -> None:
    with closing(connect()) as connection:
        with pytest.raises(RuntimeError, match="changed its mind"), unit(connection):
            assert run(withdraw(SAY, "M1", 40, "shop"), connection)
            raise RuntimeError("the shop changed its mind")
        assert states(connection) == {"packing": "open", "billing": "open"}


async def packs(message: Any, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO effects VALUES ('packed')")


def packs_and_yields(message: Any, connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("INSERT INTO effects VALUES ('packed')")
    yield


async def packs_and_yields_later(message: Any, connection: sqlite3.Connection) -> AsyncIterator[None]:
    connection.execute("INSERT INTO effects VALUES ('packed')")
    yield


@pytest.mark.parametrize("business", [packs, packs_and_yields, packs_and_yields_later])
async def test_a_business_that_is_made_and_not_executed_is_an_error_and_not_an_effect(
    connect: Callable[[], sqlite3.Connection], business: Callable[..., Any]
) -> None:
    @idempotent(Idempotent("packing", "sqlite"), connect)
    @wraps(business)
    def handle(*arguments: Any) -> Any:  # hides that it is a coroutine function
        return business(*arguments)

    with pytest.raises(TypeError, match=r"coroutine|yield"):
        await handle(RECEIVED)
    with closing(connect()) as connection:
        assert states(connection) == {"packing": "open", "billing": "open"}
        assert connection.execute("SELECT * FROM guarantee_log").fetchall() == []


class Autocommitting(sqlite3.Connection):
    """With `autocommit=True` as from Python 3.12 on: commit() and rollback() do nothing, also after a BEGIN."""

    autocommit = True

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass


@pytest.mark.parametrize("begins", [False, True])
def test_a_connection_of_sqlite_whose_commit_does_nothing_is_refused(
    connect: Callable[..., sqlite3.Connection], begins: bool
) -> None:
    with closing(connect(factory=Autocommitting)) as connection:
        if begins:
            connection.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(ConfigError, match="autocommit"),
            Idempotent("packing", "sqlite").effect(connection, RECEIVED),
        ):
            pytest.fail("the effect was begun")


def test_a_transaction_begun_by_hand_is_taken_where_commit_ends_it(connect: Callable[[], sqlite3.Connection]) -> None:
    with closing(connect()) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
        with Idempotent("packing", "sqlite").effect(connection, RECEIVED) as effect:
            assert effect
    with closing(connect()) as connection:
        assert states(connection) == {"packing": "confirmed", "billing": "open"}


def rolls_back(connection: sqlite3.Connection) -> None:
    connection.rollback()


def is_rolled_back(connection: sqlite3.Connection) -> None:
    """As MySQL does after a deadlock: the error ends the whole transaction, and the next statement begins another."""
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT OR ROLLBACK INTO guarantee_group VALUES ('Orders', 'packing', 'retry', 0, 'x')")


@pytest.mark.parametrize("interrupted", [rolls_back, is_rolled_back])
def test_a_rollback_inside_of_the_block_commits_no_part_of_the_effect(
    connect: Callable[[], sqlite3.Connection], interrupted: Callable[[sqlite3.Connection], None]
) -> None:
    with closing(connect()) as connection:
        with (
            pytest.raises(AbortedTransactionError, match="let errors leave the block"),
            Idempotent("packing", "sqlite").effect(connection, RECEIVED),
        ):
            connection.execute("INSERT INTO effects VALUES ('first half')")
            interrupted(connection)
            connection.execute("INSERT INTO effects VALUES ('second half')")
        assert connection.execute("SELECT * FROM effects").fetchall() == []
        assert states(connection) == {"packing": "open", "billing": "open"}
        with Idempotent("packing", "sqlite").effect(connection, RECEIVED) as effect:
            assert effect
        assert states(connection) == {"packing": "confirmed", "billing": "open"}


@pytest.mark.parametrize("is_used", [False, True])
def test_a_session_that_joins_a_transaction_of_its_connection_is_refused(tmp_path: Path, is_used: bool) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'joined.db'}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE effects (name TEXT)"))
    insert = sqlalchemy.text("INSERT INTO effects VALUES ('an effect')")
    with engine.connect() as connection, connection.begin() as outer, Session(connection) as session:
        if is_used:
            session.execute(insert)
        with pytest.raises(ConfigError, match="its commit ends nothing"), unit(session):
            session.execute(insert)
        outer.rollback()
    with engine.connect() as connection, Session(connection) as session:
        session.execute(insert)  # it began its transaction itself
        with unit(session):
            session.execute(insert)
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT COUNT(*) FROM effects")).scalar_one() == 2
    engine.dispose()
