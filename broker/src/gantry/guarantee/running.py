"""Run `Steps` on a database connection of the caller's, inside of whatever transaction it is in.

Nothing here connects, begins, commits or rolls back.  `run` takes a blocking connection: of the DB-API (PEP 249:
sqlite3, psycopg, PyMySQL, mysqlclient, MySQL Connector) or of SQLAlchemy (`Session`, `Connection`).  `run_async` takes
SQLAlchemy's `AsyncSession` and `AsyncConnection`, and connections of psycopg, aiosqlite, asyncmy, aiomysql and asyncpg.

A driver says in its module's `paramstyle` how it writes parameters.  Errors are the driver's own.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from gantry.guarantee import dialects
from gantry.guarantee.steps import Query, QueryAnswer, Steps

T = TypeVar("T")
_Coroutine = Callable[[Query], Awaitable[QueryAnswer]]

_TEXTS_MAX = 1024
_COUNTED = re.compile(r"\d+$")  # of asyncpg's "UPDATE 1"
_READS = re.compile(r"\s*SELECT\b", re.IGNORECASE)


def run(steps: Steps[T], connection: Any) -> T:
    """Return what the steps return, run on a blocking connection."""
    with contextlib.ExitStack() as stack:
        if _is_sqlalchemy(connection):
            execute = _of_sqlalchemy(connection)
        else:
            cursor = connection.cursor()
            stack.callback(cursor.close)
            execute = _of_cursor(cursor, paramstyle(connection))
        answer: QueryAnswer | None = None
        while True:
            try:
                query = _advance(steps, answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = execute(query)


async def run_async(steps: Steps[T], connection: Any) -> T:
    """As `run`, on a connection whose methods are coroutines."""
    if _is_sqlalchemy(connection):
        execute = _of_async_sqlalchemy(connection)
    elif type(connection).__module__.partition(".")[0] == "asyncpg":
        execute = _of_asyncpg(connection)
    else:
        execute = _of_async_driver(connection, paramstyle(connection))
    answer: QueryAnswer | None = None
    while True:
        try:
            query = _advance(steps, answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = await execute(query)


def paramstyle(connection: Any) -> str:
    """Return how a DB-API connection's driver writes parameters; TypeError when its module does not say."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0]
        style = getattr(sys.modules.get(name), "paramstyle", None)
        if isinstance(style, str):
            return "pyformat" if name in _NAMES_TOO else style
    kind = type(connection)
    raise TypeError(
        f"{kind.__module__}.{kind.__name__} is no connection of a DB-API driver; pass the connection itself, or a "
        "session of SQLAlchemy"
    )


_NAMES_TOO = {"MySQLdb", "asyncmy", "aiomysql", "pymysql"}  # their paramstyle is "format", and they take names as well


def _advance(steps: Steps[T], answer: QueryAnswer | None) -> Query:
    return next(steps) if answer is None else steps.send(answer)


@lru_cache(_TEXTS_MAX)
def _rendered(text: str, style: str) -> tuple[str, tuple[str, ...]]:
    if style in dialects.STYLES:
        return dialects.rendered(text, style), ()
    return dialects.positional(text, style)


def _said(text: str, style: str, values: Mapping[str, object]) -> tuple[str, object]:
    said, names = _rendered(text, style)
    return said, ({**values} if style in dialects.STYLES else [values[name] for name in names])


def _is_sqlalchemy(connection: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(connection).__mro__)


def _of_cursor(cursor: Any, style: str) -> Callable[[Query], QueryAnswer]:
    def execute(query: Query) -> QueryAnswer:
        cursor.execute(*_said(query.text, style, query.values))
        return QueryAnswer(cursor.rowcount, cursor.fetchall() if cursor.description is not None else ())

    return execute


def _of_sqlalchemy(connection: Any) -> Callable[[Query], QueryAnswer]:
    from sqlalchemy import text

    def execute(query: Query) -> QueryAnswer:
        return _answer_of(connection.execute(text(query.text), {**query.values}))

    return execute


def _of_async_sqlalchemy(connection: Any) -> _Coroutine:
    from sqlalchemy import text

    async def execute(query: Query) -> QueryAnswer:
        return _answer_of(await connection.execute(text(query.text), {**query.values}))

    return execute


def _answer_of(result: Any) -> QueryAnswer:
    rows: Sequence[Sequence[object]] = [tuple(row) for row in result.fetchall()] if result.returns_rows else ()
    return QueryAnswer(result.rowcount, rows)


def _of_asyncpg(connection: Any) -> _Coroutine:
    async def execute(query: Query) -> QueryAnswer:
        said, names = _rendered(query.text, "dollar")
        values = [query.values[name] for name in names]
        if _READS.match(query.text) or "RETURNING" in query.text:
            rows = [tuple(row) for row in await connection.fetch(said, *values)]
            return QueryAnswer(len(rows), rows)
        found = _COUNTED.search(await connection.execute(said, *values))
        return QueryAnswer(int(found.group()) if found else 0)

    return execute


def _of_async_driver(connection: Any, style: str) -> _Coroutine:
    async def execute(query: Query) -> QueryAnswer:
        cursor = connection.cursor()
        if inspect.isawaitable(cursor):
            cursor = await cursor
        try:
            await cursor.execute(*_said(query.text, style, query.values))
            return QueryAnswer(cursor.rowcount, list(await cursor.fetchall()) if cursor.description is not None else ())
        finally:
            closed = cursor.close()
            if inspect.isawaitable(closed):
                await closed

    return execute
