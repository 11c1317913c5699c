"""Connections to SQLite databases that were never closed.

Python complains of them from 3.13 on, and only when its collector finds one.  Here each connection is kept until it is
asked for, so that an unclosed one shows on every version and whenever it was opened:

    with watched() as connections:
        ...
    assert not left_open(connections)

A program that begins with PROGRAM ends with exit code 70 where a connection is open at its end.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAM = "from testkit import leftopen; leftopen.at_exit()\n"
EXIT_CODE = 70


@contextmanager
def watched() -> Iterator[list[sqlite3.Connection]]:
    """Give the list of the connections that `sqlite3.connect` makes from here to the end of the block."""
    plain = sqlite3.connect
    try:
        yield _watch()
    finally:
        sqlite3.connect = plain


def left_open(connections: list[sqlite3.Connection]) -> list[str]:
    """Return the files of those that are open, and close them; ":memory:" has an empty one."""
    found = []
    for connection in connections:
        try:
            found.append(str(connection.execute("PRAGMA database_list").fetchone()[2]))
        except sqlite3.ProgrammingError:  # closed, or another thread's, which only that thread can ask
            continue
        connection.close()
    return found


def at_exit() -> None:
    """Watch this program to its end."""
    made = _watch()

    def verdict() -> None:
        if found := left_open(made):
            sys.stdout.flush()
            print("SQLite connections were never closed:", *found, file=sys.stderr, flush=True)
            os._exit(EXIT_CODE)

    atexit.register(verdict)


def _watch() -> list[sqlite3.Connection]:
    plain, made = sqlite3.connect, list[sqlite3.Connection]()

    def connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
        made.append(plain(*arguments, **more))
        return made[-1]

    sqlite3.connect = connect
    return made
