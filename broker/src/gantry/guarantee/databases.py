"""Databases as services of the library use them: open a connection, run steps in one transaction, close it.

    postgresql://user:password@host/database    psycopg (extra `guarantee`)
    mysql://..., mariadb://...                  PyMySQL (extra `guarantee`)
    sqlite:///path/of/the/file                  sqlite3

`@FILE` as a whole reads the text from a file, so that no password stands on a command line.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from gantry.errors import ConfigError
from gantry.guarantee.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Dialect
from gantry.guarantee.running import run, run_async
from gantry.guarantee.steps import Steps
from gantry.guarantee.units import async_unit, unit

T = TypeVar("T")
CONNECT_S = 10
_TEXT_MAX = 4096
_SILENT_S = 60  # a server that does not answer for so long is gone
# A connection whose other end has vanished ends; a statement that waits for a lock goes on.
_LIVELY = {
    "connect_timeout": CONNECT_S,
    "tcp_user_timeout": _SILENT_S * 1000,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 9,
}
_BUSY_S = 30.0  # how long SQLite waits for another writer


class Database(Protocol):
    """Runs steps, each call in a transaction of its own."""

    async def run(self, steps: Steps[T]) -> T:
        """Commit what the steps did, and return what they returned; the driver's errors."""
        ...


class BlockingDatabase:
    """Of a function that returns a blocking connection; each call has a thread while it lasts."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    async def run(self, steps: Steps[T]) -> T:
        """Run steps on a new connection."""
        return await asyncio.to_thread(self.run_now, steps)

    def run_now(self, steps: Steps[T]) -> T:
        """The same for a caller without a loop."""
        connection = self._connect()
        try:
            with unit(connection):
                return run(steps, connection)
        finally:
            connection.close()


class AsyncDatabase:
    """Of a coroutine function that returns a connection or session, of a pool perhaps."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect

    async def run(self, steps: Steps[T]) -> T:
        """Run steps on a connection of the function's."""
        connection = await self._connect()
        try:
            async with async_unit(connection):
                return await run_async(steps, connection)
        finally:
            await connection.close()


def opened(text: str, may_create: bool = True) -> tuple[Dialect, Callable[[], Any]]:
    """Return the dialect and how to connect, for a database's address; ConfigError when it is none.

    may_create: whether connecting may make a SQLite file that is not there.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")[: _TEXT_MAX + 1].strip()
        except OSError as error:
            raise ConfigError(f"{text[1:]}: the address of the database cannot be read: {error.strerror}") from error
    kind, _, rest = text.partition("://")
    if kind == "sqlite" and rest.startswith("/") and len(rest) > 1:
        # /relative, //absolute, as SQLAlchemy has it.
        mode = "rwc" if may_create else "rw"
        address = f"file:{quote(unquote(rest[1:]))}?mode={mode}"
        return SQLITE, partial(sqlite3.connect, address, timeout=_BUSY_S, uri=True)
    if kind in ("postgresql", "postgres"):
        psycopg = _driver("psycopg", text)
        return POSTGRESQL, partial(psycopg.connect, text, **_LIVELY)
    if kind in ("mysql", "mariadb"):
        return (MYSQL if kind == "mysql" else MARIADB), partial(_driver("pymysql", text).connect, **_mysql(text))
    # Without a kind the text may begin with a user and a password.
    said = repr(kind[:20]) if rest and kind.isalnum() else "the address"
    raise ConfigError(
        f"{said} names no kind of database that is known; use postgresql://USER:PASSWORD@HOST/NAME, mysql://..., "
        "mariadb://... or sqlite:///FILE"
    )


def _mysql(text: str) -> dict[str, Any]:
    address = urlsplit(text)
    more: dict[str, Any] = dict(parse_qsl(address.query))
    found = {"user": address.username, "password": address.password, "database": address.path.lstrip("/")}
    return {
        "host": address.hostname or "127.0.0.1",
        "port": address.port or 3306,
        **{name: unquote(value) for name, value in found.items() if value},
        "connect_timeout": CONNECT_S,
        "read_timeout": _SILENT_S,
        "write_timeout": _SILENT_S,
        # A gap lock of REPEATABLE READ would hold up other groups' inserts.
        "init_command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        **more,
    }


def _driver(name: str, text: str) -> Any:
    try:
        if name == "psycopg":
            import psycopg

            return psycopg
        import pymysql
    except ImportError as error:
        kind = text.partition(":")[0]
        raise ConfigError(f"{name}, the driver of {kind}, is missing; pip install 'gantrymq[guarantee]'") from error
    return pymysql


def errors_of(dialect: Dialect) -> type[Exception]:
    """Return the class of all errors of the dialect's driver here."""
    if dialect is SQLITE:
        return sqlite3.Error
    found: type[Exception] = _driver("psycopg" if dialect is POSTGRESQL else "pymysql", dialect.name).Error
    return found
