"""What only a resend process asks of the databases: portions that nobody else has locked, attempts that are undone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest

from gantry.guarantee.statements import MISSING_COLUMNS, statements
from testkit.guaranteetables import DATABASES, GROUPS, Logged, Rules, Stub, Tables, opened

LISTS = ("exhausted", "stuck", "overdue")
THIS = {"message_id": "m1", "consumer_group": GROUPS[0]}


@pytest.fixture(scope="module", params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with opened(request.param) as made:
        yield made


@pytest.fixture
def tables(database: Tables) -> Tables:
    database.empty()
    for number in range(4):
        Stub(f"m{number}", place=None).write(database)
    database.commit()
    return database


def test_a_portion_leaves_out_what_another_process_is_claiming(tables: Tables) -> None:
    def ids(of: Tables, rows_max: int) -> list[str]:
        found = of.ask(of.say.free, **{**Rules().parameters(), "rows_max": rows_max})
        return [str(dict(zip(MISSING_COLUMNS, row, strict=True))["message_id"]) for row in found]

    first = ids(tables, 2)
    assert len(first) == 2
    with closing(tables.reconnect()) as connection:
        other = Tables(tables.dialect, connection, None)
        second = ids(other, 4)
        if tables.dialect.skip_locked:
            assert sorted([*first, *second]) == ["m0", "m1", "m2", "m3"]
        else:
            assert len(second) == 4  # the guard of `claim` decides
        other.rollback()
    tables.rollback()


def test_an_attempt_that_no_broker_took_does_not_count_and_leaves_the_rest_as_it_was(tables: Tables) -> None:
    changed = "UPDATE guarantee_delivery SET is_rearmed = 1, told_at_ms = 5, tell_after_ms = 6 WHERE message_id = 'm1'"
    tables.run(changed)
    asked = "SELECT resends, resends - resends_before, is_rearmed, told_at_ms, tell_after_ms, next_resend_at_ms FROM "
    asked = tables.of(f"{asked} guarantee_delivery WHERE message_id = 'm1' AND consumer_group = :group")
    assert tables.run(tables.say.claim, **THIS, resends=0, next_resend_at_ms=50) == 1
    assert tables.ask(asked, group=GROUPS[0]) == [(1, 1, 0, None, 0, 50)]
    undo = {**THIS, "next_resend_at_ms": 60, "is_rearmed": 1, "told_at_ms": 5, "tell_after_ms": 6}
    assert tables.run(tables.say.postpone, **undo, resends=0) == 0  # a later one
    assert tables.run(tables.say.postpone, **undo, resends=1) == 1
    assert tables.ask(asked, group=GROUPS[0]) == [(1, 0, 1, 5, 6, 60)]
    assert tables.run(tables.say.claim, **THIS, resends=1, next_resend_at_ms=70) == 1
    tables.rollback()


def test_topics_of_what_is_due_and_overdue_messages_nobody_was_told_of(tables: Tables) -> None:
    Stub("placed", place=("%RETRY%packing", "broker-a", 0, 5), due_ms=40).write(tables)
    Logged("other", place=("%RETRY%packing", "broker-a", 0, 3)).write(tables)
    this = {"consumer_group": GROUPS[0], "now_ms": 100, "rows_max": 2}
    topics = {topic for (topic,) in tables.ask(tables.say.copies, **this)}
    assert topics == {None, "%RETRY%packing"}  # also of the newest behind many older ones
    assert tables.ask(tables.say.copies, **{**this, "now_ms": -1}) == []
    overdue = {**this, "rows_max": 10, "before_ms": 50, "resends_max": 3}
    # The others have no place: nobody sent them, though they were due.
    found = [row[0] for row in tables.ask(tables.say.overdue_untold, **overdue)]
    assert found == ["m0", "m1", "m2", "m3", "placed"]
    for name in found:
        assert tables.run(tables.say.told, message_id=name, consumer_group=GROUPS[0]) == 1
    assert tables.ask(tables.say.overdue_untold, **overdue) == []
    for name in ("exhausted", "stuck", "overdue", "unsettled"):  # as /metrics counts them
        said = f"SELECT COUNT(*) FROM (\n{getattr(statements(tables.dialect, 'named'), name)}) listed"
        assert len(tables.ask(tables.of(said), **overdue)) == 1
    tables.rollback()


def test_a_portion_leaves_out_topics_that_no_broker_takes(tables: Tables) -> None:
    given = {**Rules().parameters(), "rows_max": 9}
    for topics, count in (('["Returns"]', 4), ('["Returns", "Orders"]', 0)):
        assert len(tables.ask(tables.say.free_but, **given, topics=topics)) == count
    tables.rollback()


def test_each_open_delivery_that_stays_due_is_in_one_list_for_a_person(tables: Tables) -> None:
    far = 10**13  # logged by a clock that was ahead
    passed, ahead = ("Orders", "broker-a", 0, 5), ("Orders", "broker-a", 0, 99)
    kinds = itertools.product((None, passed, ahead), (None, 0, far), (0, 3), (False, True))
    names = []
    for number, (place, logged_ms, resends, is_rearmed) in enumerate(kinds):
        names.append(f"case {number}")
        Stub(names[-1], place=place, resends=resends, is_rearmed=is_rearmed).write(tables)
        if logged_ms is not None:
            Logged(names[-1], ("Orders", "broker-b", 0, number), received_ms=logged_ms).write(tables)
    Logged("passes", ("Orders", "broker-a", 0, 9)).write(tables)
    given = {**Rules().parameters(), "before_ms": 50}
    found = [row[0] for name in LISTS for row in tables.ask(getattr(tables.say, name), **given)]
    assert sorted(each for each in found if each in names) == sorted(names)
    untold = [row[0] for name in LISTS for row in tables.ask(getattr(tables.say, f"{name}_untold"), **given)]
    assert sorted(untold) == sorted(found)
    tables.rollback()
