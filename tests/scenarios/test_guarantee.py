"""A message is withdrawn while it has its effect: on a real PostgreSQL, with both orders of the two transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from testkit.guaranteetables import Logged, Stub, Tables, in_postgresql
from testkit.patience import HANG_S
from testkit.postgres import running_postgres

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with running_postgres() as server:
        yield server.database()


@pytest.fixture(scope="module")
def shared(conninfo: str) -> Iterator[Tables]:
    with in_postgresql(conninfo) as made:
        yield made


@pytest.fixture
def tables(shared: Tables) -> Tables:
    shared.empty()
    Stub("a").write(shared)
    shared.connection.commit()
    return shared


class Other:
    """Somebody else's statement, in a transaction of its own, that has to wait for ours."""

    def __init__(self, conninfo: str, text: str) -> None:
        self.changed = -1
        self._conninfo = conninfo
        self._text = text
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        deadline = time.monotonic() + HANG_S
        with psycopg.connect(conninfo, autocommit=True) as looking:
            while looking.execute(_WAITING).fetchall() != [(1,)]:
                assert time.monotonic() < deadline, "it does not wait"
                threading.Event().wait(0.02)

    def ended(self) -> int:
        """How many rows it changed, once it could."""
        self._thread.join(HANG_S)
        return self.changed

    def _run(self) -> None:
        with psycopg.connect(self._conninfo) as connection:
            self.changed = connection.execute(self._text, {"message_id": "a"}).rowcount


def test_who_withdraws_what_is_having_its_effect_waits_and_is_too_late(tables: Tables, conninfo: str) -> None:
    assert Logged("a").write(tables) == 1
    assert tables.run(tables.say.confirm, message_id="a") == 1
    other = Other(conninfo, tables.say.void)
    assert tables.ask(tables.say.withdrawn, message_id="a") == []
    tables.connection.commit()
    assert other.ended() == 0


def test_who_withdraws_what_failed_to_have_its_effect_waits_and_is_in_time(tables: Tables, conninfo: str) -> None:
    assert Logged("a").write(tables) == 1
    assert tables.run(tables.say.confirm, message_id="a") == 1
    other = Other(conninfo, tables.say.void)
    tables.connection.rollback()
    assert other.ended() == 1
    assert Logged("a").write(tables) == 1
    assert tables.run(tables.say.confirm, message_id="a") == 0
    assert tables.ask(tables.say.withdrawn, message_id="a") == [(1,)]


def test_who_has_the_effect_while_it_is_withdrawn_waits_and_then_sees_it(tables: Tables, conninfo: str) -> None:
    assert tables.run(tables.say.void, message_id="a") == 1
    other = Other(conninfo, tables.say.confirm)
    tables.connection.commit()
    assert other.ended() == 0
    assert tables.ask(tables.say.withdrawn, message_id="a") == [(1,)]
