"""An empty PostgreSQL database for the tests of jobs, and what stands in it."""

from __future__ import annotations

from typing import Any

import psycopg


def ask(database: str, question: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """The rows that a question brings."""
    with psycopg.connect(database) as connection:
        return connection.execute(question, parameters).fetchall()


def tell(database: str, *statements: str) -> None:
    """Carry statements out, in one transaction."""
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)
