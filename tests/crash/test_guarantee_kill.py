"""kill -9 of a service's process at each named place, on SQLite: one effect, or neither business nor message."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.clock import SystemClock
from gantry.guarantee import migration
from gantry.guarantee.consuming import Decision
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import SQLITE
from gantry.guarantee.effects import BlockingOutsideEffects
from gantry.guarantee.idempotent import HeldElsewhereError, Idempotent
from gantry.guarantee.producing import OutgoingStub, declare, write_stub
from gantry.guarantee.running import run
from gantry.guarantee.statements import MISSING_COLUMNS, statements
from gantry.guarantee.units import unit
from gantry.model.message import Message
from testkit.patience import HANG_S
from testkit.sources import ROOT

SAY = statements(SQLITE, "named")

PROGRAM = """
import os, signal, sqlite3, sys
sys.path.insert(0, sys.argv[1])
from crash.test_guarantee_kill import consumed, ordered, paid
path, what, place = sys.argv[2:]

def reached(name):
    if name == place:
        os.kill(os.getpid(), signal.SIGKILL)

{"ordered": ordered, "consumed": consumed, "paid": paid}[what](path, reached)
"""


class Killed(sqlite3.Connection):
    """Says when its commit begins, and when it has ended."""

    reached: Any = staticmethod(lambda name: None)

    def commit(self) -> None:
        self.reached("before commit")
        super().commit()
        self.reached("after commit")


def connected(path: str, reached: Any) -> Killed:
    connection = sqlite3.connect(path, timeout=30.0, factory=Killed)
    connection.reached = reached
    return connection


def delivered() -> Any:
    queue = SimpleNamespace(topic="Orders", broker_name="b", queue_id=0)
    return SimpleNamespace(message_id="m1", queue=queue, queue_offset=0)


def ordered(path: str, reached: Any) -> None:
    """The producer's transaction."""
    with closing(connected(path, reached)) as connection, unit(connection):
        connection.execute("INSERT INTO business VALUES ('m1')")
        reached("business")
        run(write_stub(SAY, OutgoingStub("m1", Message("Orders", b"x")), 0, 10, "shop"), connection)
        reached("stub")


def consumed(path: str, reached: Any) -> None:
    """A group's effect in the database."""
    guard = Idempotent("packing", "sqlite")
    with closing(connected(path, reached)) as connection, guard.effect(connection, delivered()) as effect:
        reached("log")
        if effect:
            connection.execute("INSERT INTO effects VALUES ('m1')")
        reached("effect")


class Later(SystemClock):
    """A clock of an hour later: nobody's time lasts so long."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def paid(path: str, reached: Any, is_later: bool = False) -> Decision:
    """An effect outside of the database: a file beside it."""
    file = Path(path).with_name("paid")
    database = BlockingDatabase(partial(connected, path, reached))
    clock = Later() if is_later else SystemClock()
    guard = BlockingOutsideEffects("packing", "sqlite", database, asked=lambda message: file.exists(), clock=clock)
    with guard.effect(delivered()) as effect:
        if effect:
            reached("begun")
            with file.open("a") as paper:
                paper.write("paid\n")
            reached("paid")
        return effect.decision


def killed(path: Path, what: str, place: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "tests"), str(path), what, place], timeout=HANG_S, check=False
    )
    assert done.returncode == -signal.SIGKILL, f"{what} never reached {place!r}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "tables.db"
    with closing(sqlite3.connect(found)) as connection:
        migration.install(connection, SQLITE, 0)
        run(declare(SAY, "Orders", "packing", "retry", 0, "test"), connection)
        connection.execute("CREATE TABLE business (name TEXT)")
        connection.execute("CREATE TABLE effects (name TEXT)")
        connection.commit()
    return found


def ask(path: Path, text: str, **values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text, values).fetchall()


@pytest.mark.parametrize("place", ["business", "stub", "before commit", "after commit"])
def test_a_killed_producer_leaves_both_or_neither_and_its_message_is_found_when_it_is_due(
    path: Path, place: str
) -> None:
    killed(path, "ordered", place)
    rows = ask(path, SAY.missing, consumer_group="packing", now_ms=11, resends_max=1, rows_max=9)
    found = [row[MISSING_COLUMNS.index("message_id")] for row in rows]
    is_committed = place == "after commit"
    assert (ask(path, "SELECT name FROM business"), found) == (([("m1",)], ["m1"]) if is_committed else ([], []))


@pytest.mark.parametrize("place", ["log", "effect", "before commit", "after commit"])
def test_a_killed_consumer_has_its_effect_once_when_the_message_comes_again(path: Path, place: str) -> None:
    ordered(str(path), lambda name: None)
    killed(path, "consumed", place)
    for _ in range(2):
        consumed(str(path), lambda name: None)
    assert ask(path, "SELECT name FROM effects") == [("m1",)]
    assert ask(path, "SELECT state FROM guarantee_delivery") == [("confirmed",)]


@pytest.mark.parametrize("place", ["before commit", "after commit", "begun", "paid"])
def test_a_killed_consumer_pays_once_when_its_time_is_over(path: Path, place: str) -> None:
    ordered(str(path), lambda name: None)
    killed(path, "paid", place)
    if place != "before commit":
        with pytest.raises(HeldElsewhereError):
            paid(str(path), lambda name: None)
    paid(str(path), lambda name: None, is_later=True)
    assert paid(str(path), lambda name: None, is_later=True) is Decision.DONE
    assert path.with_name("paid").read_text() == "paid\n"
    assert ask(path, "SELECT state FROM guarantee_delivery") == [("confirmed",)]
