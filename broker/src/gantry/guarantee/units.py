"""One transaction of the caller's connection or session, ended here: commit, or rollback.

Drivers differ in how a transaction ends: sessions of SQLAlchemy and connections of the DB-API have `commit` and
`rollback`, blocking or as coroutines; asyncpg has transaction objects.  The transaction may have begun before.

Four things would break the guarantee without an error, so they are refused here:

    autocommit              each statement would be a transaction by itself
    a transaction around    a session of SQLAlchemy that joins one of its connection commits nothing
    an aborted transaction  PostgreSQL answers a COMMIT with ROLLBACK after an error that the program caught, and its
                            drivers raise nothing
    an end inside           a commit or rollback of the program inside of the block (`with connection.transaction()` of
                            psycopg, `with session.begin()`) would end a part of it: psycopg, asyncpg and SQLAlchemy

Of other drivers nothing tells the last one; `producing.mark` and `consuming.is_logged` find most of it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gantry.errors import ConfigError, GantryError

_IDLE, _IN_ERROR = 0, 3  # of libpq's PQtransactionStatus, as psycopg and psycopg2 have it
_PROBE = "SELECT 1"


class AbortedTransactionError(GantryError):
    """The database will not commit: a statement failed before, and the program went on. It was rolled back."""


@contextmanager
def unit(connection: Any) -> Iterator[None]:
    """Commit when the block ends, roll back when it raises.  An error of the commit leaves the outcome unknown."""
    _check(connection)
    if _is_idle_psycopg(connection):
        with _block(connection):
            yield
        return
    begun = _begun(connection)
    try:
        yield
        _check_same(connection, begun)
        _check_not_aborted(_driver_of(connection))
        connection.commit()
        _check_ended(connection)
    except BaseException:
        # Also after a failed commit: SQLite keeps a transaction open that it could not commit.
        is_undone = False
        try:
            with contextlib.suppress(Exception):  # the first error counts
                connection.rollback()
                is_undone = True
        finally:
            if not is_undone:
                with contextlib.suppress(Exception):
                    _discard(connection)
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
    if _is_idle_psycopg(connection):
        async with _async_block(connection):
            yield
        return
    is_sqlalchemy = _package(connection) == "sqlalchemy"
    begun = await connection.run_sync(_begun) if is_sqlalchemy else None
    try:
        yield
        if is_sqlalchemy:
            await connection.run_sync(_check_same, begun)
        await _check_async_not_aborted(connection, is_probed)
        await connection.commit()
        _check_ended(connection)
    except BaseException:
        is_undone = False
        try:
            with contextlib.suppress(Exception):
                await connection.rollback()
                is_undone = True
        finally:  # cancelled once more, perhaps
            if not is_undone:
                await _discard_async(connection)
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


def _is_idle_psycopg(connection: Any) -> bool:
    """Whether psycopg's own block can be the whole transaction; in it psycopg refuses commit() and rollback()."""
    return _package(connection) == "psycopg" and int(connection.info.transaction_status) == _IDLE


@contextmanager
def _block(connection: Any) -> Iterator[None]:
    block = connection.transaction()
    transaction = block.__enter__()
    try:
        yield
        _check_not_aborted(connection)
    except BaseException as error:
        block.__exit__(type(error), error, error.__traceback__)
        raise  # also psycopg's Rollback, which its block would swallow: the caller has to know
    block.__exit__(None, None, None)
    _check_committed(transaction)


@asynccontextmanager
async def _async_block(connection: Any) -> AsyncIterator[None]:
    block = connection.transaction()
    transaction = await block.__aenter__()
    try:
        yield
        _check_not_aborted(connection)
    except BaseException as error:
        try:
            await block.__aexit__(type(error), error, error.__traceback__)
        finally:
            if int(connection.info.transaction_status) != _IDLE:
                await _discard_async(connection)
        raise
    await block.__aexit__(None, None, None)
    _check_committed(transaction)


def _discard(connection: Any) -> Any:
    """Close a connection that could not be rolled back: the next block would commit what is left in it."""
    return connection.invalidate() if _package(connection) == "sqlalchemy" else connection.close()


async def _discard_async(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await _discard(connection)


def _check_committed(transaction: Any) -> None:
    """Raise where psycopg has sent no COMMIT: it leaves its block without an error when the connection is gone."""
    if transaction.status.value != "committed":
        raise AbortedTransactionError(
            "the connection was lost inside of the block, and the error was caught, so nothing was committed; let the "
            "error leave the block"
        )


def _begun(connection: Any) -> Any:
    """Begin the transaction of a session or connection of SQLAlchemy, if none has begun; return its root."""
    if _package(connection) != "sqlalchemy":
        return None
    if not connection.in_transaction():
        connection.begin()
    return connection.get_transaction()


def _check_same(connection: Any, begun: Any) -> None:
    if begun is not None and connection.get_transaction() is not begun:
        raise AbortedTransactionError(
            "the transaction of the block was committed or rolled back inside of it, so a part of it would be stored "
            "without the rest; end it by leaving the block"
        )


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
