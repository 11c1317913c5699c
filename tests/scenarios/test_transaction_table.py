"""The table of local transactions on real servers: a checker waits for an open transaction, and reads how it ended."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.transactiontable import MYSQL, POSTGRESQL, TransactionSql, fence, record, statements
from gantry.mns.values import HANDLE_MAX
from testkit.pairplay import until
from testkit.patience import HANG_S
from testkit.postgres import running_postgres


@dataclass(frozen=True)
class Database:
    """How to reach a database, and how many of its transactions wait for a lock."""

    connect: Callable[[], Any]
    sql: TransactionSql
    waiting: str
    duplicate: type[Exception]

    def count_waiting(self) -> int:
        """How many wait now."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self.waiting)
            found: int = cursor.fetchone()[0]
            return found


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    if request.param == "postgresql":
        with running_postgres() as server:
            conninfo = server.database()
            waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
            yield made(
                Database(
                    lambda: psycopg.connect(conninfo), statements(POSTGRESQL), waiting, psycopg.errors.UniqueViolation
                )
            )
        return
    try:
        mysqlserver, pymysql = (importlib.import_module(name) for name in ("testkit.mysqlserver", "pymysql"))
    except ModuleNotFoundError as error:
        pytest.skip(f"missing {error.name}; make dev")
    with mysqlserver.running_mariadb() as server:
        name = server.database()
        waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        yield made(Database(lambda: server.connect(name), statements(MYSQL), waiting, pymysql.err.IntegrityError))


def made(database: Database) -> Database:
    """Make the table; a second time it is there."""
    with closing(database.connect()) as connection:
        for _ in range(2):
            connection.cursor().execute(database.sql.create)
        connection.commit()
    return database


def test_who_inserts_first_decides_and_case_counts(database: Database) -> None:
    with closing(database.connect()) as connection:
        longest = "x" * HANDLE_MAX
        for handle in ("Done", longest):
            record(connection.cursor(), database.sql, handle, 1)
        connection.commit()
        outcomes = [fence(connection, database.sql, handle, 2) for handle in ("Done", "done", longest, longest[1:])]
        assert outcomes == [LocalOutcome.COMMITTED, LocalOutcome.ROLLED_BACK] * 2
        assert fence(connection, database.sql, "done", 3) is LocalOutcome.ROLLED_BACK
        with pytest.raises(database.duplicate):
            record(connection.cursor(), database.sql, "done", 4)
        connection.rollback()
        cursor = connection.cursor()
        cursor.execute(database.sql.forget, {"before_ms": 3})
        connection.commit()
        cursor.execute("SELECT COUNT(*) FROM mns_transaction")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("outcome", [LocalOutcome.COMMITTED, LocalOutcome.ROLLED_BACK])
def test_a_checker_waits_for_the_end_of_a_transaction_that_is_open(database: Database, outcome: LocalOutcome) -> None:
    handle = f"open-{outcome.name}"
    with (
        closing(database.connect()) as local,
        closing(database.connect()) as checker,
        ThreadPoolExecutor(1) as thread,
    ):
        # A snapshot from before: MySQL reads by it in REPEATABLE READ, unless it is told to read what is current.
        cursor = checker.cursor()
        cursor.execute("SELECT COUNT(*) FROM mns_transaction")
        cursor.fetchone()
        if database.duplicate is psycopg.errors.UniqueViolation:
            checker.rollback()
        record(local.cursor(), database.sql, handle, 1)
        answer = thread.submit(fence, checker, database.sql, handle, 2)
        until(lambda: database.count_waiting() == 1, "the checker waits for the key")
        assert not answer.done()
        if outcome is LocalOutcome.COMMITTED:
            local.commit()
        else:
            local.rollback()
        assert answer.result(HANG_S) is outcome


def test_a_local_transaction_waits_for_a_fence_and_fails(database: Database) -> None:
    with closing(database.connect()) as local, closing(database.connect()) as checker, ThreadPoolExecutor(1) as thread:
        checker.cursor().execute(database.sql.fence, {"handle": "late", "now_ms": 1})
        answer = thread.submit(record, local.cursor(), database.sql, "late", 2)
        until(lambda: database.count_waiting() == 1, "the local transaction waits for the key")
        checker.commit()
        with pytest.raises(database.duplicate):
            answer.result(HANG_S)
        local.rollback()
