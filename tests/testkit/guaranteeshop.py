"""A service's database with stubs in SQLite, for tests of resends and of people; a clock that can be put forward."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from gantry.client.received import ReceivedMessage
from gantry.clock import SystemClock
from gantry.guarantee import migration
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import SQLITE
from gantry.guarantee.idempotent import Idempotent
from gantry.guarantee.producing import OutgoingStub, StoredPlace, declare, write_places, write_stub
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Query, Steps
from gantry.model.message import Message

SAY = statements(SQLITE, "named")


class Ahead(SystemClock):
    """The machine's clock, put forward."""

    ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ms


class Stubs:
    """Tables, with what tests write into them and ask of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"sqlite:///{path}"
        self.connect = partial(sqlite3.connect, path, timeout=30.0)
        self.database = BlockingDatabase(self.connect)
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migration.install(connection, SQLITE, 0)
            connection.execute("CREATE TABLE effects (consumer_group TEXT, message_id TEXT)")
            connection.commit()

    def declare(self, *groups: str, topic: str = "Orders", by: str = "retry") -> None:
        for group in groups:
            self.database.run_now(declare(SAY, topic, group, by, 0, "test"))

    def write(self, *ids: str, topic: str = "Orders", groups: tuple[str, ...] = (), due_ms: int = 0) -> None:
        """Stubs as a producer writes them that dies before it sends."""
        for message_id in ids:
            message = Message(topic, message_id.encode(), keys=(f"order-{message_id}",))
            stub = OutgoingStub(message_id, message, "", groups)
            self.database.run_now(write_stub(SAY, stub, 1_000, due_ms, "shop"))

    def place(self, message_id: str, offset: int, topic: str = "Orders") -> None:
        place = StoredPlace(message_id, topic, "broker-a", 0, offset)
        self.database.run_now(write_places(SAY, [place]))

    def log(self, message_id: str, group: str, effect: str = "done", offset: int = 9) -> None:
        """A consumer's row, as if it had died before it confirmed."""
        place = {"topic": "Orders", "broker": "broker-a", "queue_id": 0, "queue_offset": offset}
        named = {"consumer_group": group, "message_id": message_id, "received_at_ms": 1_000}
        self.database.run_now(_one(SAY.log, {**named, **place}))
        self.do(f"UPDATE guarantee_log SET effect = '{effect}' WHERE message_id = '{message_id}'")

    def do(self, text: str) -> None:
        with closing(self.connect()) as connection:
            connection.execute(text)
            connection.commit()

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(text).fetchall()

    def states(self, group: str = "%") -> dict[str, int]:
        text = f"SELECT state, COUNT(*) FROM guarantee_delivery WHERE consumer_group LIKE '{group}' GROUP BY state"
        return dict(self.ask(text))

    def effects(self) -> list[tuple[str, str]]:
        return sorted(self.ask("SELECT consumer_group, message_id FROM effects"))

    def listener(self, group: str, seen: list[ReceivedMessage] | None = None) -> Any:
        """A coroutine that has each message's effect once."""
        guard = Idempotent(group, "sqlite")

        def work(message: ReceivedMessage) -> None:
            with closing(self.connect()) as connection, guard.effect(connection, message) as effect:
                if effect:
                    connection.execute("INSERT INTO effects VALUES (?, ?)", (group, message.message_id))

        async def handle(message: ReceivedMessage) -> None:
            if seen is not None:
                seen.append(message)
            await asyncio.to_thread(work, message)

        return handle


def rows(text: str, values: dict[str, object]) -> Steps[list[tuple[Any, ...]]]:
    """Steps that return a statement's rows."""
    return [tuple(row) for row in (yield Query(text, values)).rows]


def _one(text: str, values: dict[str, object]) -> Steps[int]:
    return (yield Query(text, values)).changed
