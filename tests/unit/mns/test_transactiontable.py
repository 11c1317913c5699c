"""The table of local transactions on SQLite; PostgreSQL and MariaDB in tests/scenarios/test_transaction_table.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.transactiontable import MYSQL, POSTGRESQL, SQLITE, fence, record, statements

SQL = statements(SQLITE)


def test_who_inserts_first_decides() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(SQL.create)
        database.execute(SQL.create)
        with database:
            record(database.cursor(), SQL, "Done", 1)
        assert [fence(database, SQL, "Done", 2) for _ in range(2)] == [LocalOutcome.COMMITTED] * 2
        assert [fence(database, SQL, "done", 2) for _ in range(2)] == [LocalOutcome.ROLLED_BACK] * 2
        with pytest.raises(sqlite3.IntegrityError), database:
            record(database.cursor(), SQL, "done", 3)
        assert database.execute("SELECT * FROM mns_transaction").fetchall() == [
            ("Done", "done", 1),
            ("done", "fence", 2),
        ]
        database.execute(SQL.forget, {"before_ms": 2})
        assert database.execute("SELECT handle FROM mns_transaction").fetchall() == [("done",)]


def test_while_the_local_transaction_is_open_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as local, closing(sqlite3.connect(path, timeout=0)) as checker:
        local.execute(SQL.create)
        record(local.cursor(), SQL, "a", 1)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            fence(checker, SQL, "a", 2)
        assert not checker.in_transaction
        local.commit()
        assert fence(checker, SQL, "a", 2) is LocalOutcome.COMMITTED


def test_a_fence_is_committed_before_it_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path)) as other:
        one.execute(SQL.create)
        assert fence(one, SQL, "a", 2) is LocalOutcome.ROLLED_BACK
        assert other.execute("SELECT state FROM mns_transaction").fetchall() == [("fence",)]


@pytest.mark.parametrize("name", ["", "a b", "a;drop", "A", "a" * 64])
def test_a_name_that_is_no_plain_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected up to 63"):
        statements(SQLITE, name)


def test_parameters_are_those_of_the_drivers() -> None:
    assert ":handle" in SQL.record
    for dialect in (POSTGRESQL, MYSQL):
        text = statements(dialect, "shop_transaction")
        assert "%(handle)s" in text.record and ":" not in text.fence and "shop_transaction" in text.state
