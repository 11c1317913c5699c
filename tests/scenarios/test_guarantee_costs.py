"""Round trips that the guarantee adds to the caller's transactions, counted on real databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gantry.guarantee import migration
from gantry.guarantee.consuming import Arrival, Decision, KeyState, arrive_with_key, is_logged
from gantry.guarantee.dialects import POSTGRESQL, SQLITE, Dialect
from gantry.guarantee.producing import OutgoingStub, StoredPlace, declare, write_places, write_stub
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Query, Steps
from gantry.model.message import Message
from testkit.postgres import running_postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Dialect, Any]]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "tables.db")) as connection:
            yield SQLITE, connection
        return
    with running_postgres() as server, closing(psycopg.connect(server.database())) as connection:
        yield POSTGRESQL, connection


class Counted:
    """Runs steps and counts their statements: each is a round trip."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.count = 0

    def __call__(self, steps: Steps[Any]) -> tuple[Any, int]:
        self.count = 0
        return run(self._each(steps), self.connection), self.count

    def _each(self, steps: Steps[Any]) -> Steps[Any]:
        answer = None
        while True:
            try:
                query: Query = next(steps) if answer is None else steps.send(answer)
            except StopIteration as end:
                return end.value
            self.count += 1
            answer = yield query


def test_a_message_costs_one_round_trip_and_its_effect_two_or_three(opened: tuple[Dialect, Any]) -> None:
    dialect, connection = opened
    say, counted = statements(dialect, "named"), Counted(connection)
    migration.install(connection, dialect, 0)
    for group in ("packing", "billing"):
        counted(declare(say, "Orders", group, "retry", 0, "test"))
    stub = OutgoingStub("m1", Message("Orders", b"x"))
    assert counted(write_stub(say, stub, 0, 10, "shop"))[1] == (1 if dialect is POSTGRESQL else 2)
    places = [StoredPlace(f"m{number}", "Orders", "b", 0, number) for number in range(500)]
    assert counted(write_places(say, places))[1] == 1
    arrival = Arrival("packing", "m1", "Orders", "b", 0, 1)
    assert counted(arrive_with_key(say, arrival, KeyState.OURS, 0, "w")) == (Decision.RUN, 2)
    assert counted(is_logged(say, arrival)) == (True, 1)
    assert counted(arrive_with_key(say, arrival, KeyState.UNKNOWN, 0, "w")) == (Decision.DONE, 3)
    assert counted(arrive_with_key(say, arrival, KeyState.DONE, 0, "w")) == (Decision.DONE, 1)
