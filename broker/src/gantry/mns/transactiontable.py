"""The application's own table of local transactions: one row a receipt handle, `done` or `fence`.

The producer's local transaction inserts `done` under the handle of its prepared message.  A checker inserts `fence`
under the same key, if the key is free, commits, and then reads the row:

    done     the local transaction was committed: commit the message
    fence    it was not, and cannot be any more: its own insert fails on the key.  Roll the message back

The primary key decides between the two, so it does not matter how late either is.  `record` should be the first
statement of the local transaction: a late one then fails before it has done its work.  An insert waits while another
transaction has inserted the same key and is open; a database that gives up waiting raises, and the checker asks again
at the next check.

Statements have the parameters `handle` and `now_ms`, in the form of the dialect's drivers: sqlite3 `:handle`; psycopg,
PyMySQL and mysqlclient `%(handle)s`.  Handles differ by case, so MySQL's column compares bytes.
Rows may be removed when no check of theirs can come any more: `forget`, with `before_ms` at least the life of the
operation log and its timeout ago.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from gantry.mns.messagecalls import checked_handle
from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.values import HANDLE_MAX

TABLE = "mns_transaction"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class TableDialect:
    """What differs: the type of the key, how an insert keeps a row, a parameter, how a read is made current."""

    key: str
    kept: str
    parameter: str
    current: str


# A plain SELECT of MySQL in REPEATABLE READ may show a state from before the row that the insert has waited for: FOR
# UPDATE reads what is committed.  INSERT IGNORE is no way to keep a row: it would also cut a handle that is too long.
SQLITE = TableDialect("TEXT", " ON CONFLICT (handle) DO NOTHING", r":\1", "")
POSTGRESQL = TableDialect(f"VARCHAR({HANDLE_MAX})", " ON CONFLICT (handle) DO NOTHING", r"%(\1)s", " FOR UPDATE")
MYSQL = TableDialect(
    f"VARCHAR({HANDLE_MAX}) CHARACTER SET ascii COLLATE ascii_bin",
    " ON DUPLICATE KEY UPDATE handle = handle",
    r"%(\1)s",
    " FOR UPDATE",
)


@dataclass(frozen=True, slots=True)
class TransactionSql:
    """All statements, in the order of a transaction's life."""

    create: str
    record: str  # the producer, first in its local transaction; it fails when there is a fence
    fence: str  # the checker, in a transaction of its own; a row that is there stays as it is
    state: str  # the checker, after `fence` in the same transaction: one row, 'done' or 'fence'
    forget: str  # rows older than `before_ms`


def statements(dialect: TableDialect, table: str = TABLE) -> TransactionSql:
    """Return the statements for a table of this name; ValueError unless it is a plain name in lower case."""
    if not _NAME.fullmatch(table):
        raise ValueError(f"table {table!r}: expected up to 63 of a to z, 0 to 9 and _, a letter first")
    columns = "(handle, state, changed_at_ms)"
    texts = (
        f"CREATE TABLE IF NOT EXISTS {table} (\n"
        f"    handle        {dialect.key} NOT NULL PRIMARY KEY,\n"
        "    state         VARCHAR(5) NOT NULL CHECK (state IN ('done', 'fence')),\n"
        "    changed_at_ms BIGINT NOT NULL\n)",
        f"INSERT INTO {table} {columns} VALUES (:handle, 'done', :now_ms)",
        f"INSERT INTO {table} {columns} VALUES (:handle, 'fence', :now_ms){dialect.kept}",
        f"SELECT state FROM {table} WHERE handle = :handle{dialect.current}",
        f"DELETE FROM {table} WHERE changed_at_ms < :before_ms",
    )
    return TransactionSql(*(re.sub(r":([a-z_]+)", dialect.parameter, text) for text in texts))


class DatabaseCursor(Protocol):
    """A cursor of a DB-API driver (PEP 249)."""

    def execute(self, statement: str, parameters: dict[str, object], /) -> object:
        """Run one statement."""

    def fetchone(self) -> tuple[object, ...] | None:
        """Return the next row of the last one."""


class DatabaseConnection(Protocol):
    """A connection of a DB-API driver (PEP 249), not in its mode of automatic commits."""

    def cursor(self) -> DatabaseCursor:
        """Return a new cursor."""

    def commit(self) -> None:
        """Commit the open transaction."""

    def rollback(self) -> None:
        """Roll the open transaction back."""


def record(cursor: DatabaseCursor, sql: TransactionSql, handle: str, now_ms: int) -> None:
    """Insert the row of a local transaction into it; raises the driver's error of a duplicate key after a fence."""
    cursor.execute(sql.record, {"handle": checked_handle(handle), "now_ms": now_ms})


def fence(connection: DatabaseConnection, sql: TransactionSql, handle: str, now_ms: int) -> LocalOutcome:
    """Return how a local transaction ended; one that has not committed by now never will.

    The connection must have no open transaction.  The driver's errors pass, after a rollback: nothing is known then.
    """
    try:
        cursor = connection.cursor()
        cursor.execute(sql.fence, {"handle": checked_handle(handle), "now_ms": now_ms})
        cursor.execute(sql.state, {"handle": handle})
        row = cursor.fetchone()
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    assert row is not None, "the row was inserted in this transaction or was there before"
    return LocalOutcome.COMMITTED if row[0] == "done" else LocalOutcome.ROLLED_BACK
