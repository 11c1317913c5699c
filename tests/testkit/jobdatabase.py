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


def stubs(rows: str) -> tuple[str, str]:
    """Statements that write messages which the group packing lacks and is due to get, from a query of rows

    (message_id, topic, body, message_keys, properties, broker, queue_id, queue_offset).
    """
    named = f"({rows}) AS r (message_id, topic, body, message_keys, properties, broker, queue_id, queue_offset)"
    return (
        "INSERT INTO guarantee_stub SELECT message_id, topic, body::bytea, message_keys, '', properties, 'open', 1,"
        f" 1, 1, 'shop' FROM {named}",
        "INSERT INTO guarantee_delivery (message_id, consumer_group, state, resend_by, next_resend_at_ms, copy_topic,"
        " broker, queue_id, queue_offset, created_at_ms, changed_at_ms, changed_by) SELECT message_id, 'packing',"
        f" 'open', 'topic', 1, topic, broker, queue_id, queue_offset, 1, 1, 'shop' FROM {named}",
    )
