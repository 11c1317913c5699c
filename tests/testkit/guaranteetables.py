"""The guarantee's tables on a real database, and a model of its conditions that knows no SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from pymysql.constants.CLIENT import FOUND_ROWS

from gantry.guarantee import dialects, migration, schema, statements
from testkit.mysqlserver import has_mysql, running_mariadb, running_mysql
from testkit.postgres import running_postgres

DATABASES = ("sqlite", "postgresql", "mariadb", *(["mysql"] if has_mysql() else []))
GROUPS = ("packing", "billing")
BY = "test"


@dataclass
class Tables:
    """A connection with the dialect that it speaks; `reconnect` opens another one to the same tables."""

    dialect: dialects.Dialect
    connection: Any
    reconnect: Any
    say: statements.Statements = field(init=False)

    def __post_init__(self) -> None:
        self.say = statements.statements(self.dialect)

    def run(self, text: str | tuple[str, ...], **parameters: object) -> int:
        """How many rows a statement, or the last of several, touched; it is not committed."""
        cursor = self.connection.cursor()
        for each in (text,) if isinstance(text, str) else text:
            cursor.execute(each, {"now_ms": 0, "changed_by": BY, **parameters})
        return int(cursor.rowcount)

    def ask(self, text: str, **parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a question brings."""
        cursor = self.connection.cursor()
        cursor.execute(text, parameters)
        return [tuple(row) for row in cursor.fetchall()]

    def of(self, text: str) -> str:
        """A statement of a test, as the driver takes it."""
        return dialects.rendered(text, self.dialect.style)

    def declare(self, *groups: str, topic: str = "Orders", by: str = "retry") -> None:
        for group in groups:
            self.run(self.say.declare, topic=topic, consumer_group=group, resend_by=by)

    def empty(self) -> None:
        """As after they were made; the groups of `Orders` are declared."""
        self.connection.rollback()
        for table in (schema.STUB, schema.DELIVERY, schema.LOG, schema.GROUP, schema.PROGRESS):
            self.run(f"DELETE FROM {table.name}")
        self.declare(*GROUPS)
        self.connection.commit()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def state(self, message_id: str, group: str = GROUPS[0]) -> str:
        text = "SELECT state FROM guarantee_delivery WHERE message_id = :message_id AND consumer_group = :group"
        ((state,),) = self.ask(self.of(text), message_id=message_id, group=group)
        return str(state)


@contextmanager
def opened(name: str) -> Iterator[Tables]:
    """Give empty tables in a database of this name, a real server but for SQLite; skip without its package."""
    dialect = dialects.dialect_of(name)
    with ExitStack() as stack:
        connect: Any
        if name == "sqlite":
            # Not in memory: a second connection would have another database.
            folder = stack.enter_context(TemporaryDirectory(prefix="gantry-sqlite-"))
            connect = partial(sqlite3.connect, f"{folder}/tables.db")
        elif name == "postgresql":
            connect = partial(psycopg.connect, stack.enter_context(running_postgres()).database())
        else:
            server = stack.enter_context(running_mysql() if name == "mysql" else running_mariadb())
            begin = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            # With this flag an unchanged row counts; SQLAlchemy sets it, a plain driver does not.
            flag = FOUND_ROWS if name == "mariadb" else 0
            connect = partial(server.connect, server.database(), init_command=begin, client_flag=flag)
        connection = stack.enter_context(closing(connect()))
        migration.install(connection, dialect, 0)
        tables = Tables(dialect, connection, connect)
        tables.empty()
        yield tables


@contextmanager
def in_sqlite() -> Iterator[Tables]:
    """Give the tables in a SQLite database in memory; it is closed at the end of the block."""
    with closing(sqlite3.connect(":memory:")) as connection:
        migration.install(connection, dialects.SQLITE, 0)
        tables = Tables(dialects.SQLITE, connection, None)
        tables.empty()
        yield tables


Place = tuple[str, str, int, int]  # topic, broker, queue, offset


@dataclass(frozen=True)
class Stub:
    """A message, and the delivery of it to one group as far as the conditions look at it."""

    message_id: str
    state: str = "open"
    resends: int = 0
    due_ms: int = 0
    place: Place | None = ("Orders", "broker-a", 0, 5)
    group: str = GROUPS[0]
    is_rearmed: bool = False
    before: int = 0

    def write(self, tables: Tables) -> None:
        """Into the tables, as the producer does, then as it came to be."""
        content = {"topic": "Orders", "body": b"te\0a\xff", "message_keys": "", "tags": "", "properties": "{}"}
        made = tables.run(tables.say.stub, message_id=self.message_id, next_resend_at_ms=self.due_ms, **content)
        assert made == len(GROUPS)
        this = {"message_id": self.message_id, "consumer_group": self.group}
        if self.place is not None:
            assert tables.run(tables.say.moved, **this, resends=0, **placed(self.place)) == 1
        changed = tables.of(
            "UPDATE guarantee_delivery SET state = :state, resends = :resends, is_rearmed = :is_rearmed,"
            " resends_before = :before WHERE message_id = :message_id AND consumer_group = :consumer_group"
        )
        values = {"state": self.state, "resends": self.resends, "is_rearmed": int(self.is_rearmed)}
        tables.run(changed, **this, **values, before=self.before)
        if self.state == "void":
            text = "UPDATE guarantee_stub SET status = 'void' WHERE message_id = :message_id"
            tables.run(tables.of(text), message_id=self.message_id)


@dataclass(frozen=True)
class Logged:
    """A row of guarantee_log."""

    message_id: str
    place: Place = ("Orders", "broker-a", 0, 9)
    group: str = GROUPS[0]
    received_ms: int = 0

    def write(self, tables: Tables) -> bool:
        """Into the table; return whether it was new."""
        topic, broker, queue, offset = self.place
        values = {"topic": topic, "broker": broker, "queue_id": queue, "queue_offset": offset}
        this = {"consumer_group": self.group, "message_id": self.message_id, "received_at_ms": self.received_ms}
        return tables.run(tables.say.log, **this, **values) == 1


def placed(place: Place) -> dict[str, object]:
    """The parameters of `place` and `moved`."""
    return dict(zip(("copy_topic", "broker", "queue_id", "queue_offset"), place, strict=True))


@dataclass(frozen=True)
class Rules:
    """The parameters of `missing`."""

    now_ms: int = 100
    resends_max: int = 3
    group: str = GROUPS[0]

    def parameters(self) -> dict[str, object]:
        """As the statements name them."""
        return {
            "now_ms": self.now_ms, "resends_max": self.resends_max, "consumer_group": self.group, "rows_max": 1000,
        }  # fmt: skip


def missing(
    stubs: Sequence[Stub], logged: Sequence[Logged], progress: dict[tuple[str, str, int], int], rules: Rules
) -> set[str]:
    """The model: the ids that have to be sent again to the group of these rules; `progress` is what its broker says."""
    log = [each for each in logged if each.group == rules.group]
    arrived = {each.message_id for each in log}
    found = set()
    for stub in stubs:
        if stub.group != rules.group or stub.state != "open" or stub.due_ms > rules.now_ms:
            continue
        if stub.resends - stub.before >= rules.resends_max:
            continue
        seen = [each.place[3] for each in log if stub.place and each.place[:3] == stub.place[:3]]
        is_past = stub.place is None or (bool(seen) and stub.place[3] < max(seen))
        is_past = is_past or (stub.place is not None and stub.place[3] < progress.get(stub.place[:3], 0))
        if stub.is_rearmed or (is_past and stub.message_id not in arrived):
            found.add(stub.message_id)
    return found
