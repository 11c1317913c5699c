"""Two transactions about one message at once, on real servers: in both orders, and with both ends of the first one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from gantry.guarantee import rules
from testkit.guaranteetables import BY, DATABASES, Logged, Stub, Tables, opened
from testkit.patience import HANG_S

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "mariadb": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
THIS = {"message_id": "a", "consumer_group": "packing"}
LATE = {"now_ms": 7, "changed_by": BY, "resends": 0, "next_resend_at_ms": 6}


@pytest.fixture(scope="module", params=[name for name in DATABASES if name in WAITING])
def shared(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with opened(request.param) as made:
        yield made


@pytest.fixture
def tables(shared: Tables) -> Tables:
    shared.empty()
    Stub("a").write(shared)
    shared.commit()
    return shared


class Other:
    """A statement, or some, of another process, in a transaction of its own."""

    def __init__(self, tables: Tables, text: str | tuple[str, ...], waits: bool = True) -> None:
        self.changed = -1
        self._tables = tables
        self._texts = (text,) if isinstance(text, str) else text
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        if waits:
            self._await_lock()

    def ended(self) -> int:
        """How many rows the last one changed, once it could."""
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()
        return self.changed

    def _await_lock(self) -> None:
        deadline = time.monotonic() + HANG_S
        with closing(self._tables.reconnect()) as looking:
            looking.autocommit = True if self._tables.dialect.name == "postgresql" else looking.autocommit
            cursor = looking.cursor()
            while True:
                cursor.execute(WAITING[self._tables.dialect.name])
                if cursor.fetchall()[0][0]:
                    return
                assert time.monotonic() < deadline, "it does not wait"
                threading.Event().wait(0.3)  # InnoDB renews this table only when nobody has read it for 0.1 s

    def _run(self) -> None:
        place = {"topic": "Orders", "broker": "b", "queue_id": 0, "queue_offset": 1, "received_at_ms": 0}
        with closing(self._tables.reconnect()) as connection:
            cursor = connection.cursor()
            for text in self._texts:
                cursor.execute(text, {**THIS, **LATE, **place})
            self.changed = cursor.rowcount
            connection.commit()


def withdrawn(tables: Tables) -> bool:
    return not rules.may_have_effect(tables.ask(tables.say.verdict, **THIS))


@pytest.mark.parametrize("step", ["confirm", "begin"])
def test_who_withdraws_what_is_having_its_effect_waits_and_is_too_late(tables: Tables, step: str) -> None:
    assert Logged("a").write(tables)
    assert tables.run(getattr(tables.say, step), **THIS, now_ms=3) == 1
    other = Other(tables, tables.say.void)
    assert not withdrawn(tables) or step == "confirm"
    tables.commit()
    assert other.ended() == 0


def test_who_withdraws_what_failed_to_have_its_effect_waits_and_is_in_time(tables: Tables) -> None:
    assert Logged("a").write(tables)
    assert tables.run(tables.say.confirm, **THIS) == 1
    other = Other(tables, tables.say.void)
    tables.rollback()
    assert other.ended() == 1
    assert Logged("a").write(tables)
    assert tables.run(tables.say.confirm, **THIS) == 0
    assert withdrawn(tables)


def test_who_has_the_effect_while_it_is_withdrawn_waits_and_then_sees_it(tables: Tables) -> None:
    assert tables.run(tables.say.void, message_id="a") == 1
    other = Other(tables, tables.say.confirm)
    tables.commit()
    assert other.ended() == 0
    assert withdrawn(tables)


@pytest.mark.parametrize("is_committed", [True, False])
def test_of_two_copies_at_once_the_second_waits_and_is_new_only_if_the_first_failed(
    tables: Tables, is_committed: bool
) -> None:
    assert Logged("a").write(tables)
    other = Other(tables, tables.say.log)
    tables.commit() if is_committed else tables.rollback()
    assert (other.ended() == 1) == (not is_committed)


def test_two_groups_that_handle_a_message_at_once_do_not_wait_for_each_other(tables: Tables) -> None:
    assert Logged("a", group="billing").write(tables)
    assert tables.run(tables.say.confirm, message_id="a", consumer_group="billing") == 1
    assert Other(tables, (tables.say.log, tables.say.confirm), waits=False).ended() == 1
    tables.commit()
    assert (tables.state("a"), tables.state("a", "billing")) == ("confirmed", "confirmed")


def test_of_two_resends_that_claim_at_once_one_gets_it(tables: Tables) -> None:
    assert tables.run(tables.say.claim, **THIS, resends=0, next_resend_at_ms=5) == 1
    other = Other(tables, tables.say.claim)
    tables.commit()
    assert other.ended() == 0
