"""The tables of gantry.guarantee.schema on a real database, and a model of them that knows no SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg

from gantry.guarantee import schema


class Cursor(Protocol):
    """What both drivers' cursors have."""

    rowcount: int

    def execute(self, text: str, parameters: Any = ..., /) -> Any:
        """Run one statement."""

    def fetchall(self) -> list[Any]:
        """The rows of the last one."""


@dataclass
class Tables:
    """A connection with the dialect that it speaks."""

    dialect: schema.Dialect
    connection: Any
    say: schema.Statements = field(init=False)

    def __post_init__(self) -> None:
        self.say = schema.statements(self.dialect)
        for statement in schema.create(self.dialect):
            self.run(statement)
        self.connection.commit()

    def run(self, text: str, **parameters: object) -> int:
        """How many rows a statement touched; it is not committed."""
        cursor: Cursor = self.connection.cursor()
        cursor.execute(text, parameters)
        return cursor.rowcount

    def ask(self, text: str, **parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a question brings."""
        cursor: Cursor = self.connection.cursor()
        cursor.execute(text, parameters)
        return cursor.fetchall()

    def empty(self) -> None:
        """As after `create`."""
        self.connection.rollback()
        self.run("DELETE FROM message_stub")
        self.run("DELETE FROM message_log")
        self.connection.commit()


@contextmanager
def in_sqlite() -> Iterator[Tables]:
    """Give the tables in a SQLite database in memory; it is closed at the end of the block."""
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Tables(schema.SQLITE, connection)


@contextmanager
def in_postgresql(conninfo: str) -> Iterator[Tables]:
    """Give the tables in PostgreSQL; the connection is closed at the end of the block."""
    with closing(psycopg.connect(conninfo)) as connection:
        yield Tables(schema.POSTGRESQL, connection)


@dataclass(frozen=True)
class Stub:
    """A row of message_stub, as far as the conditions look at it."""

    message_id: str
    status: str = "unconfirmed"
    resends: int = 0
    due_ms: int = 0
    place: tuple[str, int, int] | None = ("broker-a", 0, 5)

    def write(self, tables: Tables) -> None:
        """Into the table."""
        content = {"topic": "Orders", "body": b"tea", "message_keys": "", "tags": "", "properties": "{}"}
        times = {"next_resend_at_ms": self.due_ms, "created_at_ms": 0}
        assert tables.run(tables.say.stub, message_id=self.message_id, **content, **times) == 1
        if self.place is not None:
            broker, queue, offset = self.place
            values = {"broker": broker, "queue_id": queue, "queue_offset": offset}
            assert tables.run(tables.say.place, message_id=self.message_id, **values) == 1
        changed = "UPDATE message_stub SET status = :status, resends = :resends WHERE message_id = :message_id"
        values = {"status": self.status, "resends": self.resends, "message_id": self.message_id}
        tables.run(schema.in_words_of(tables.dialect, changed), **values)


@dataclass(frozen=True)
class Logged:
    """A row of message_log."""

    message_id: str
    place: tuple[str, int, int] = ("broker-a", 0, 9)
    group: str = "packing"
    received_ms: int = 0
    topic: str = "Orders"

    def write(self, tables: Tables) -> int:
        """Into the table: 1, or 0 when the group has seen the message."""
        broker, queue, offset = self.place
        values = {"topic": self.topic, "broker": broker, "queue_id": queue, "queue_offset": offset}
        values["received_at_ms"] = self.received_ms
        return tables.run(tables.say.log, consumer_group=self.group, message_id=self.message_id, **values)


@dataclass(frozen=True)
class Rules:
    """The parameters of `missing`."""

    now_ms: int = 100
    resends_max: int = 3
    group: str = "packing"

    def parameters(self) -> Mapping[str, object]:
        """As the statements name them."""
        return {
            "now_ms": self.now_ms, "resends_max": self.resends_max, "consumer_group": self.group, "rows_max": 1000,
        }  # fmt: skip


def missing(stubs: Sequence[Stub], logged: Sequence[Logged], rules: Rules) -> set[str]:
    """The model: the ids that have to be sent again."""
    log = [each for each in logged if each.group == rules.group]
    arrived = {each.message_id for each in log}
    found = set()
    for stub in stubs:
        if stub.place is None or stub.status != "unconfirmed" or stub.message_id in arrived:
            continue
        consumed = [
            each.place[2] for each in log if each.topic == "Orders" and each.place[:2] == stub.place[:2]
        ]  # fmt: skip
        is_past = bool(consumed) and stub.place[2] < max(consumed)
        if is_past and stub.resends < rules.resends_max and stub.due_ms <= rules.now_ms:
            found.add(stub.message_id)
    return found
