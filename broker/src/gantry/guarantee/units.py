"""One transaction of the caller's connection or session, ended here: commit, or rollback.

Drivers differ in how a transaction ends: sessions of SQLAlchemy and connections of the DB-API have `commit` and
`rollback`, blocking or as coroutines; asyncpg has transaction objects.  The transaction may have begun before.

Three things would break the guarantee without an error, so they are refused here:

    autocommit              each statement would be a transaction by itself
    a transaction around    a session of SQLAlchemy that joins one of its connection commits nothing
    an aborted transaction  PostgreSQL answers a COMMIT with ROLLBACK after an error that the program caught, and its
                            drivers raise nothing
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gantry.errors import ConfigError, GantryError

_IN_ERROR = 3  # of libpq's PQtransactionStatus, as psycopg and psycopg2 have it
_PROBE = "SELECT 1"


class AbortedTransactionError(GantryError):
    """The database will not commit: a statement failed before, and the program went on. It was rolled back."""


@contextmanager
def unit(connection: Any) -> Iterator[None]:
    """Commit when the block ends, roll back when it raises.  An error of the commit leaves the outcome unknown."""
    _check(connection)
    try:
        yield
        _check_not_aborted(_driver_of(connection))
        connection.commit()
        _check_ended(connection)
    except BaseException:
        # Also after a failed commit: SQLite keeps a transaction open that it could not commit.
        with contextlib.suppress(Exception):  # the first error counts, and a broken connection has nothing to undo
            connection.rollback()
        raise


@asynccontextmanager
async def async_unit(connection: Any, is_probed: bool = True) -> AsyncIterator[None]:
    """As `unit`, on a connection whose methods are coroutines.

    is_probed: whether asyncpg is asked if the transaction is aborted; False for a block whose last statement shows it.
    """
    if _package(connection) == "asyncpg":
        if connection.is_in_transaction():
            raise ConfigError(
                "the connection of asyncpg is in a transaction; its end has to be the end of the block, so begin none"
            )
        async with connection.transaction():
            yield
            if is_probed:
                await connection.execute(_PROBE)  # raises in an aborted transaction; a COMMIT would not
        return
    _check(connection)
    try:
        yield
        await _check_async_not_aborted(connection, is_probed)
        await connection.commit()
        _check_ended(connection)
    except BaseException:
        with contextlib.suppress(Exception):
            await connection.rollback()
        raise


def _package(connection: Any) -> str:
    packages = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    return next((package for package in packages if package in _KNOWN), packages[0])


_KNOWN = ("sqlalchemy", "psycopg", "psycopg2", "asyncpg", "sqlite3", "aiosqlite")


def _check(connection: Any) -> None:
    """Raise ConfigError for a connection in autocommit."""
    package = _package(connection)
    if package == "sqlalchemy":
        if not connection.in_transaction():
            _check_ended(connection)
        is_autocommit = _is_autocommit_sqlalchemy(connection)
    elif package in ("sqlite3", "aiosqlite"):
        # -1: as before Python 3.12, the isolation level decides.  True: commit() does nothing, also after a BEGIN.
        mode = getattr(connection, "autocommit", -1)
        begins_nothing = connection.isolation_level is None and not connection.in_transaction
        is_autocommit = begins_nothing if mode == -1 else mode is True
    elif hasattr(connection, "get_autocommit"):  # PyMySQL, aiomysql, mysqlclient
        is_autocommit = bool(connection.get_autocommit())
    else:
        is_autocommit = getattr(connection, "autocommit", False) is True
    if is_autocommit:
        raise ConfigError(
            f"the connection of {package} is in autocommit: message and effect would not be one transaction; switch "
            "autocommit off"
        )


def _check_ended(connection: Any) -> None:
    """Raise ConfigError when a session joined a transaction of its connection: its commit leaves that one open."""
    if hasattr(connection, "get_bind") and getattr(_bound(connection), "in_transaction", bool)():
        raise ConfigError(
            "the session is bound to a connection with a transaction that began before it, so its commit ends nothing; "
            "begin none on the connection, or bind the session to the engine"
        )


def _bound(connection: Any) -> Any:
    """The engine or connection below a session of SQLAlchemy; a connection itself."""
    bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return getattr(bound, "sync_connection", None) or getattr(bound, "sync_engine", None) or bound


def _is_autocommit_sqlalchemy(connection: Any) -> bool:
    bound = _bound(connection)
    options = bound.get_execution_options()
    level = options.get("isolation_level") or getattr(bound.dialect, "_on_connect_isolation_level", None)
    return str(level).upper() == "AUTOCOMMIT"


def _driver_of(connection: Any) -> Any:
    """The driver's connection below a session of SQLAlchemy, whose transaction has begun or is begun by this."""
    if _package(connection) != "sqlalchemy":
        return connection
    if not connection.in_transaction():
        return None
    core = connection.connection() if hasattr(connection, "get_bind") else connection
    return core.connection.driver_connection


def _check_not_aborted(driver: Any) -> None:
    info = getattr(driver, "info", None)
    status = getattr(info, "transaction_status", None)
    if status is not None and int(status) == _IN_ERROR:
        raise AbortedTransactionError(
            "a statement of this transaction failed and its error was caught, so the database does not commit; let the "
            "error leave the block, or use a savepoint around the statement"
        )


async def _check_async_not_aborted(connection: Any, is_probed: bool) -> None:
    if _package(connection) != "sqlalchemy":
        _check_not_aborted(connection)
        return
    driver = await connection.run_sync(_driver_of)
    if _package(driver) == "asyncpg":
        if not is_probed:
            return
        found = driver.execute(_PROBE)
        if inspect.isawaitable(found):
            await found
        return
    _check_not_aborted(driver)
