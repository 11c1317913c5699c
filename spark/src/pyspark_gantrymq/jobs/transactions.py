"""Transactions of a task in PostgreSQL: one per chunk of rows, repeated until its outcome is known.

Runs in executors.  Each chunk is carried out by `work(cursor, rows)` inside one transaction.  When the connection
breaks, or the database picks this transaction as a deadlock's victim, the chunk is begun again on a fresh one.  The
break may have come after the COMMIT and before its answer, so the work has to be idempotent: it begins with an insert
into a table with a unique key, and does the rest only for rows that were inserted (gantry.guarantee).  The same
holds for Spark's own repetition of tasks and batches.

A database that is away longer than ATTEMPTS fails the task; Spark tries it again, then the query ends with the cause,
and the next start repeats the batch.  Chunks are bounded in rows and in bytes, since a body may have 4 MiB.

A connection string `@FILE` is read from that file where it is needed, on the executor: a secret that is mounted
appears neither in a plan nor in a command line.  One that cannot be read is an error that does not show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

CHUNK_ROWS = 500
CHUNK_BYTES = 8 << 20
FETCH_ROWS = 16
ATTEMPTS = 6
PAUSE_S = 0.2  # before the second attempt; doubled with each further one
CONNECT_S = 10
# A server that disappeared silently is noticed within a minute; libpq's own default is two hours.  Values in the
# connection string override these.
ALIVE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
UNREADABLE = (
    "the connection string of --database cannot be read, and is not shown because of its password; there are "
    "host=... dbname=... user=... password=..., and postgresql://user:password@host:port/name, where the password has "
    "%40 for @, %3A for :, %2F for / and %25 for %"
)

Row = dict[str, Any]
Cursor = psycopg.Cursor[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield runs of rows that fit into one transaction; their size is that of `body`."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.get("body") or b"")
        if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def carry_out(database: str, parts: Iterable[T], work: Callable[[Cursor, T], Any]) -> Iterator[Any]:
    """Yield the result of `work` for each part, once its transaction is known to be committed."""
    connection: Connection | None = None
    try:
        for part in parts:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    connection = connection or connect(database)
                    with connection.transaction(), connection.cursor() as cursor:
                        result = work(cursor, part)
                    break
                except psycopg.OperationalError:
                    if connection is not None:
                        connection.close()
                        connection = None
                    if attempt == ATTEMPTS:
                        raise
                    time.sleep(PAUSE_S * 2 ** (attempt - 1))
            yield result
    finally:
        if connection is not None:
            connection.close()


def carry_out_once(database: str, work: Callable[[Cursor], T]) -> T:
    """Return the result of `work` once its transaction is known to be committed."""
    (result,) = carry_out(database, [None], lambda cursor, _: work(cursor))
    return result  # type: ignore[no-any-return]


def carry_out_alone(database: str, work: Callable[[Connection], T]) -> T:
    """Return the result of `work`, which begins and ends transactions by itself; it begins again after a break."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with closing(connect(database)) as connection:
                return work(connection)
        except psycopg.OperationalError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
    raise AssertionError("unreachable")


def first_of(
    cursor: Cursor, text: str, parameters: Row, bytes_max: int, size_of: Callable[[tuple[Any, ...]], int]
) -> list[tuple[Any, ...]]:
    """Return the first rows of a query, in its order, of at most so many bytes together, and at least one row.

    The others do not leave the database: a row may have some MiB, and the driver holds what is returned.
    """
    found: list[tuple[Any, ...]] = []
    size = 0
    with cursor.connection.cursor(name="first_of") as rows:
        rows.itersize = FETCH_ROWS
        rows.execute(text, parameters)
        for row in rows:
            size += size_of(row)
            if found and size > bytes_max:
                break
            found.append(row)
    return found


def connect(database: str) -> Connection:
    """Open a connection whose commits survive a crash of the database: Spark's checkpoint moves on after them."""
    target = conninfo(database)
    given = _check(target)
    alive: dict[str, Any] = {name: value for name, value in ALIVE.items() if name not in given}
    connection = psycopg.connect(
        target, autocommit=True, connect_timeout=CONNECT_S, application_name="gantrymq", **alive
    )
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    return connection


def conninfo(database: str) -> str:
    """Return the connection string for libpq, read from the file for `@FILE`."""
    return Path(database[1:]).read_text(encoding="utf-8").strip() if database.startswith("@") else database


def _check(target: str) -> dict[str, Any]:
    """Return the parts of a connection string; a ValueError without it, because libpq's error would show passwords."""
    try:
        parts = conninfo_to_dict(target)
    except psycopg.ProgrammingError:
        raise ValueError(UNREADABLE) from None
    host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    is_port = not port or port.replace(",", "").isdecimal()
    if not is_port or ("://" in target and "@" in host + name):
        raise ValueError(UNREADABLE)
    return parts


def inserted(cursor: Cursor, text: str, rows: Iterable[Row]) -> list[bool]:
    """Return whether each row was inserted by this `INSERT ... ON CONFLICT DO NOTHING`, or changed by this UPDATE."""
    return [bool(found) for found in answers(cursor, f"{text}\nRETURNING 1", rows)]


def answers(cursor: Cursor, text: str, rows: Iterable[Row]) -> list[list[tuple[Any, ...]]]:
    """Return for each row the rows that the statement returns, all in one round trip."""
    given = list(rows)
    if not given:
        return []
    cursor.executemany(text, given, returning=True)
    found = [cursor.fetchall()]
    while cursor.nextset():
        found.append(cursor.fetchall())
    assert len(found) == len(given)
    return found
