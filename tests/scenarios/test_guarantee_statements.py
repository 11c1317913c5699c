"""What the guarantee's statements do, on four real databases; which messages are sent again: tests/properties."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gantry.guarantee import rules, statements
from testkit.guaranteetables import BY, DATABASES, Logged, Rules, Stub, Tables, opened, placed
from testkit.patience import HANG_S

FIRST = {"message_id": "a", "consumer_group": "packing"}
OTHER = {"message_id": "a", "consumer_group": "billing"}
DAY_MS = 86_400_000
CONTENT = {"topic": "Orders", "body": b"\0\xff", "message_keys": "k", "tags": "", "properties": "{}"}


@pytest.fixture(scope="module", params=DATABASES)
def shared(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with opened(request.param) as made:
        yield made


@pytest.fixture
def tables(shared: Tables) -> Tables:
    shared.empty()
    return shared


def ids(tables: Tables, name: str, **more: object) -> list[str]:
    given = {**Rules().parameters(), "before_ms": 50, "state": "", **more}
    return [row[0] for row in tables.ask(getattr(tables.say, name), **given)]


def refused(tables: Tables, text: Any, **parameters: object) -> str:
    """The database's error; the transaction is undone."""
    with pytest.raises(Exception) as caught:
        tables.run(text, **parameters)
    tables.rollback()
    return str(caught.value)


def test_a_stub_has_a_delivery_for_each_group_that_is_declared_for_its_topic(tables: Tables) -> None:
    tables.declare("audit", topic="Returns", by="topic")
    assert tables.run(tables.say.stub, message_id="a", next_resend_at_ms=7, **CONTENT) == 2
    assert tables.ask("SELECT message_id, groups_expected, body FROM guarantee_stub") == [("a", 2, b"\0\xff")]
    columns = "consumer_group, state, resend_by, next_resend_at_ms, queue_offset, changed_by"
    found = sorted(tables.ask(f"SELECT {columns} FROM guarantee_delivery"))
    assert found == [(group, "open", "retry", 7, None, BY) for group in ("billing", "packing")]


@pytest.mark.parametrize(("ahead_ms", "is_bounded"), [(3 * DAY_MS, True), (-3 * DAY_MS, False)])
def test_a_producer_whose_clock_is_ahead_delays_no_resend(tables: Tables, ahead_ms: int, is_bounded: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    said_ms = now_ms + ahead_ms
    for name, groups in (("stub", {}), ("stub_for", {"consumer_groups": '["billing"]'})):
        times = {"now_ms": said_ms, "next_resend_at_ms": said_ms + 60_000}
        tables.run(getattr(tables.say, name), message_id=name, **times, **CONTENT, **groups)
    due = {row[0] for row in tables.ask("SELECT next_resend_at_ms FROM guarantee_delivery")}
    if is_bounded:
        assert all(now_ms + 30_000 < found < now_ms + 60_000 + HANG_S * 1000 for found in due)
    else:
        assert due == {said_ms + 60_000}


def test_a_stub_for_whose_topic_no_group_is_declared_fails_with_what_to_do(tables: Tables) -> None:
    why = refused(tables, tables.say.stub, message_id="a", next_resend_at_ms=7, **{**CONTENT, "topic": "Returns"})
    assert "declare_the_consumer_groups_of_this_topic" in why
    why = refused(tables, tables.say.stub_for, message_id="a", next_resend_at_ms=7, **CONTENT, consumer_groups="[]")
    assert "declare_the_consumer_groups_of_this_topic" in why


def test_a_message_may_name_its_own_groups(tables: Tables) -> None:
    tables.declare("audit", by="topic")
    named = {"consumer_groups": json.dumps(["audit", "räuber"])}
    assert tables.run(tables.say.stub_for, message_id="a", next_resend_at_ms=7, **CONTENT, **named) == 2
    found = tables.ask("SELECT consumer_group, resend_by FROM guarantee_delivery")
    assert sorted(found) == [("audit", "topic"), ("räuber", "retry")]


def test_a_second_stub_of_one_id_is_refused(tables: Tables) -> None:
    Stub("a").write(tables)
    assert refused(tables, tables.say.stub, message_id="a", next_resend_at_ms=7, **CONTENT)


def test_a_group_is_declared_again_with_another_way_and_undeclared(tables: Tables) -> None:
    tables.declare("packing", by="pop")
    assert tables.ask(tables.say.declared) == [("Orders", "billing", "retry"), ("Orders", "packing", "pop")]
    assert tables.run(tables.say.undeclare, topic="Orders", consumer_group="packing") == 1
    assert tables.ask(tables.say.declared) == [("Orders", "billing", "retry")]
    assert refused(tables, tables.say.declare, topic="Orders", consumer_group="x", resend_by="pigeon")


def test_ids_that_differ_in_case_accents_or_trailing_spaces_are_different(tables: Tables) -> None:
    for name in ("a", "A", "a ", "ä", "\u00e4a"):
        Stub(name).write(tables)
        assert Logged(name).write(tables)
    assert tables.run(tables.say.confirm, message_id="A", consumer_group="packing") == 1
    assert ids(tables, "in_state", state="confirmed") == ["A"]
    assert tables.run(tables.say.confirm, message_id="a", consumer_group="PACKING") == 0


def test_a_message_is_logged_once_by_each_group(tables: Tables) -> None:
    rows = (Logged("a"), Logged("a"), Logged("a"), Logged("a", group="billing"))
    assert [row.write(tables) for row in rows] == [True, False, False, True]


def test_a_group_that_confirms_leaves_the_delivery_to_the_other_one_open(tables: Tables) -> None:
    Stub("a").write(tables)
    assert [tables.run(tables.say.confirm, **FIRST) for _ in range(2)] == [1, 0]
    assert (tables.state("a"), tables.state("a", "billing")) == ("confirmed", "open")


def test_places_are_stored_one_by_one_or_many_at_once(tables: Tables) -> None:
    for name in ("a", "b", "c", "A"):
        Stub(name, place=None).write(tables)
    place = placed(("Orders", "broker-a", 1, 2**40))
    assert tables.run(tables.say.place, message_id="a", **place) == 2
    rest = json.dumps([{"message_id": name, **place} for name in ("b", "c", "unheard of")])
    assert tables.run(tables.say.place_all, places=rest) == 4
    found = tables.ask("SELECT DISTINCT message_id, copy_topic, broker, queue_id, queue_offset FROM guarantee_delivery")
    known = [(name, "Orders", "broker-a", 1, 2**40) for name in ("a", "b", "c")]
    assert sorted(row for row in found if row[1]) == known and ("A", None, None, None, None) in found
    assert refused(tables, tables.say.place, message_id="A", **{**place, "broker": None})


def test_a_delivery_stands_where_it_was_sent_last_no_matter_who_says_so_late(tables: Tables) -> None:
    Stub("a").write(tables)
    first, second = placed(("%RETRY%packing", "broker-a", 1, 7)), placed(("%RETRY%packing", "broker-b", 1, 3))
    late = placed(("Orders", "broker-a", 0, 6))
    for resends in (0, 1):
        assert tables.run(tables.say.claim, **FIRST, resends=resends, next_resend_at_ms=200) == 1
    assert tables.run(tables.say.moved, **FIRST, **second, resends=2) == 1
    assert tables.run(tables.say.moved, **FIRST, **first, resends=1) == 0
    assert tables.run(tables.say.place, message_id="a", **late) == 1, "only for the group that has the first copy"
    places = tables.ask("SELECT consumer_group, broker, queue_offset FROM guarantee_delivery")
    assert sorted(places) == [("billing", "broker-a", 6), ("packing", "broker-b", 3)]


def test_only_one_of_two_who_saw_the_same_count_may_send_again(tables: Tables) -> None:
    Stub("a").write(tables)
    claim = {**FIRST, "resends": 0, "next_resend_at_ms": 200}
    assert [tables.run(tables.say.claim, **claim) for _ in range(2)] == [1, 0]
    assert tables.run(tables.say.confirm, **FIRST) == 1
    assert tables.run(tables.say.claim, **{**claim, "resends": 1}) == 0


def test_what_is_missing_comes_with_all_that_a_resend_needs(tables: Tables) -> None:
    Stub("a", place=None, resends=3, before=1).write(tables)
    (row,) = tables.ask(tables.say.missing, **Rules().parameters())
    found = dict(zip(statements.MISSING_COLUMNS, row, strict=True))
    assert {name: found[name] for name in ("resends", "attempts", "topic", "body", "resend_by")} == {
        "resends": 3, "attempts": 2, "topic": "Orders", "body": b"te\0a\xff", "resend_by": "retry",
    }  # fmt: skip


def test_a_message_is_withdrawn_for_all_groups_or_for_none(tables: Tables) -> None:
    for name in ("a", "b", "c"):
        Stub(name).write(tables)
    assert tables.run(tables.say.void, message_id="a") == 1
    assert tables.run(tables.say.confirm, **FIRST) == 0
    assert not rules.may_have_effect(tables.ask(tables.say.verdict, **FIRST))
    assert not rules.may_have_effect(tables.ask(tables.say.verdict, message_id="a", consumer_group="undeclared"))
    assert tables.run(tables.say.void, message_id="a") == 0
    tables.commit()
    for name, too_late in (("b", "confirm"), ("c", "begin")):
        assert tables.run(getattr(tables.say, too_late), message_id=name, consumer_group="billing") == 1
        tables.commit()
        assert tables.run(tables.say.void, message_id=name) == 0
        tables.rollback()
        assert tables.state(name) == "open", "the other group still has to handle it"
    assert tables.run(tables.say.void, message_id="unheard of") == 0


def test_what_a_person_closed_can_be_withdrawn_and_then_not_be_rearmed(tables: Tables) -> None:
    Stub("a").write(tables)
    assert tables.run(tables.say.close, **FIRST) == 1
    assert tables.run(tables.say.void, message_id="a") == 1
    assert tables.run(tables.say.rearm, **FIRST) == 0
    Stub("b").write(tables)
    outside = {"message_id": "b", "consumer_group": "packing"}
    assert tables.run(tables.say.begin, **outside) == tables.run(tables.say.close, **outside) == 1
    assert tables.run(tables.say.void, message_id="b") == 0, "perhaps it happened"


def test_what_is_withdrawn_confirmed_or_closed_is_not_sent_and_has_no_effect(tables: Tables) -> None:
    for state in ("void", "confirmed", "closed", "legacy", "open"):
        Stub(state, state=state, place=None).write(tables)
    assert ids(tables, "missing") == ["open"]
    for state, may in (("void", False), ("confirmed", False), ("closed", False), ("legacy", True), ("open", True)):
        this = {"message_id": state, "consumer_group": "packing"}
        assert rules.may_have_effect(tables.ask(tables.say.verdict, **this)) == may
        assert (tables.run(tables.say.confirm, **this) == 1) == may
    assert rules.may_have_effect(tables.ask(tables.say.verdict, message_id="of others", consumer_group="packing"))


def test_a_delivery_whose_effect_was_refused_is_as_before_and_its_log_row_says_so(tables: Tables) -> None:
    Stub("a").write(tables)
    Stub("old", state="legacy").write(tables)
    tables.run("UPDATE guarantee_stub SET status = 'legacy' WHERE message_id = 'old'")
    for name, before in (("a", "open"), ("old", "legacy")):
        this = {"message_id": name, "consumer_group": "packing"}
        assert Logged(name).write(tables)
        assert tables.run(tables.say.confirm, **this) == 1
        assert tables.run(tables.say.revert, **this) == 1
        assert tables.run(tables.say.refuse, **this) == 1
        assert tables.state(name) == before
        ((effect, _, until),) = tables.ask(tables.say.look, **this)
        assert rules.judge(effect, until, 5) is rules.LogFinding.REFUSED
    assert (ids(tables, "stuck"), ids(tables, "missing")) == (["a"], [])


def test_an_effect_outside_of_the_database_has_one_owner_at_a_time(tables: Tables) -> None:
    Stub("a").write(tables)
    place = {"topic": "Orders", "broker": "broker-a", "queue_id": 0, "queue_offset": 5, "received_at_ms": 1}
    one, two = {"owner": "one", "owner_until_ms": 100}, {"owner": "two", "owner_until_ms": 200}
    assert tables.run(tables.say.log_begun, **FIRST, **place, **one) == 1
    assert tables.run(tables.say.log_begun, **FIRST, **place, **two) != 1
    (row,) = tables.ask(tables.say.look, **FIRST)
    assert row == ("processing", "one", 100)
    assert rules.judge(row[0], row[2], 99) is rules.LogFinding.HELD
    assert rules.judge(row[0], row[2], 100) is rules.LogFinding.UNKNOWN
    assert tables.run(tables.say.suspect, **FIRST, owner="one", now_ms=99) == 0
    assert ids(tables, "unsettled", now_ms=100) == ["packing"]
    assert tables.run(tables.say.suspect, **FIRST, owner="one", now_ms=100) == 1
    assert tables.run(tables.say.extend, **FIRST, owner="one", owner_until_ms=300) == 0
    assert [tables.run(tables.say.take, **FIRST, **two, former_owner="one") for _ in range(2)] == [1, 0]
    assert tables.run(tables.say.finish, **FIRST, owner="one") == 0
    assert tables.run(tables.say.extend, **FIRST, owner="two", owner_until_ms=300) == 1
    assert tables.run(tables.say.release, **FIRST, owner="one") == 0
    assert tables.run(tables.say.finish, **FIRST, owner="two") == 1
    assert tables.run(tables.say.release, **FIRST, owner="two") == 0
    (row,) = tables.ask(tables.say.look, **FIRST)
    assert rules.judge(row[0], row[2], 999) is rules.LogFinding.DONE
    assert ids(tables, "unsettled", now_ms=999) == []
    assert tables.run(tables.say.begin, **FIRST) == tables.run(tables.say.close, **FIRST) == 1
    assert tables.run(tables.say.confirm, **FIRST) == 1, "closed while it was under way: what happened counts"
    assert tables.run(tables.say.log_begun, **OTHER, **place, **one) == 1
    assert tables.run(tables.say.release, **OTHER, owner="one") == 1
    assert tables.run(tables.say.log_begun, **OTHER, **place, **two) == 1


def test_what_a_person_has_to_see_is_listed_by_its_reason(tables: Tables) -> None:
    rows = [Stub("often", resends=4, before=1), Stub("seen often", resends=3), Stub("soon", resends=3, due_ms=101)]
    rows += [Stub("stuck"), Stub("just came"), Stub("waits", place=("Orders", "broker-b", 0, 3)), Stub("new")]
    rows += [Stub("waits shortly", due_ms=60, place=("Orders", "broker-b", 0, 4)), Stub("nowhere", place=None)]
    logged = [Logged("seen often", received_ms=60), Logged("stuck"), Logged("just came", received_ms=60)]
    for row in (*rows, *logged, Logged("other", ("Orders", "broker-b", 0, 3))):
        row.write(tables)
    names = ("exhausted", "stuck", "overdue", "missing")
    wanted = [["often"], ["stuck"], ["new", "nowhere", "waits"], ["new", "nowhere"]]
    assert [ids(tables, name) for name in names] == wanted
    assert [ids(tables, name, consumer_group="billing") for name in names[:2]] == [[], []]
    (row,) = tables.ask(tables.say.exhausted, **Rules().parameters())
    found = dict(zip(statements.DELIVERY_COLUMNS, row, strict=True))
    assert (found["resends"], found["attempts"], found["queue_offset"], found["topic"]) == (4, 3, 5, "Orders")


def test_a_person_is_told_once_and_again_when_telling_failed(tables: Tables) -> None:
    Stub("a", resends=3).write(tables)
    tell = {**FIRST, "tell_after_ms": 160, "now_ms": 100}
    assert [tables.run(tables.say.tell, **tell) for _ in range(2)] == [1, 0]
    assert (ids(tables, "exhausted_untold"), ids(tables, "exhausted")) == ([], ["a"])
    assert ids(tables, "exhausted_untold", now_ms=160) == ["a"]
    assert tables.run(tables.say.tell, **{**tell, "now_ms": 160, "tell_after_ms": 200}) == 1
    assert [tables.run(tables.say.told, **FIRST) for _ in range(2)] == [1, 0]
    assert ids(tables, "exhausted_untold", now_ms=999) == []
    assert tables.run(tables.say.rearm, **FIRST) == 1
    assert tables.run(tables.say.tell, **tell) == 1, "of what happens after that"


def test_what_a_person_rearms_is_sent_again_whatever_its_place_and_log_say(tables: Tables) -> None:
    rows = [Stub("often", resends=3, place=("Orders", "b", 0, 9)), Stub("stuck"), Stub("closed", state="closed")]
    for row in (*rows, Stub("done", state="confirmed"), Stub("void", state="void"), Logged("stuck")):
        row.write(tables)
    changed = [
        tables.run(tables.say.rearm, message_id=name, consumer_group="packing", now_ms=90, changed_by="ann")
        for name in ("often", "stuck", "closed", "done", "void", "unheard of")
    ]
    assert changed == [1, 1, 1, 0, 0, 0]
    assert ids(tables, "missing") == ["closed", "often", "stuck"]
    assert ids(tables, "exhausted") == ids(tables, "stuck") == []
    assert tables.run(tables.say.claim, message_id="often", consumer_group="packing", resends=3, next_resend_at_ms=99)
    assert ids(tables, "missing") == ["closed", "stuck"], "once, then by its place"
    who = "SELECT changed_by FROM guarantee_delivery WHERE message_id = 'closed' AND consumer_group = 'packing'"
    assert tables.ask(who) == [("ann",)]


def test_a_person_closes_confirms_and_clears(tables: Tables) -> None:
    for name in ("a", "b"):
        Stub(name, resends=3).write(tables)
    assert [tables.run(tables.say.close, **FIRST, changed_by="ann") for _ in range(2)] == [1, 0]
    assert [tables.run(tables.say.confirm_by_hand, **FIRST, changed_by="bob") for _ in range(2)] == [1, 0]
    assert (tables.state("a"), ids(tables, "exhausted")) == ("confirmed", ["b"])
    other = {"message_id": "b", "consumer_group": "packing"}
    assert Logged("b").write(tables)
    assert tables.run(tables.say.clear, **other) == tables.run(tables.say.unrefuse, **other) == 0, "it is done"
    tables.run(tables.say.refuse, **other)
    assert (tables.run(tables.say.clear, **other), tables.run(tables.say.unrefuse, **other)) == (0, 1)
    place = {"topic": "Orders", "broker": "broker-a", "queue_id": 0, "queue_offset": 5, "received_at_ms": 1}
    assert tables.run(tables.say.log_begun, **other, **place, owner="one", owner_until_ms=100) == 1
    assert [tables.run(tables.say.clear, **other, now_ms=now) for now in (99, 100)] == [0, 1]
    assert Logged("b").write(tables)


def test_a_message_is_shown_with_its_deliveries_and_log_rows(tables: Tables) -> None:
    Stub("a").write(tables)
    Logged("a", group="billing").write(tables)
    ((topic, *_, size),) = tables.ask(tables.say.show_stub, message_id="a")
    assert (topic, size) == ("Orders", 5)
    shown = [
        dict(zip(statements.DELIVERY_COLUMNS, row, strict=True))
        for row in tables.ask(tables.say.show_deliveries, message_id="a")
    ]
    assert [(row["consumer_group"], row["queue_offset"]) for row in shown] == [("billing", None), ("packing", 5)]
    (logged,) = tables.ask(tables.say.show_log, message_id="a")
    assert dict(zip(statements.LOG_COLUMNS, logged, strict=True))["effect"] == "done"


def test_the_backlog_and_the_totals_are_counted(tables: Tables) -> None:
    for row in (Stub("a", due_ms=101), Stub("b"), Stub("c", state="confirmed")):
        row.write(tables)
    backlog = [tuple(map(int, row[1:])) for row in tables.ask(tables.say.backlog, now_ms=100)]
    assert backlog == [(3, 0, 2), (2, 0, 1)]
    totals = [("billing", "open", 3), ("packing", "confirmed", 1), ("packing", "open", 2)]
    assert tables.ask(tables.say.totals) == totals


def test_log_rows_are_forgotten_by_age_but_those_that_a_condition_or_a_person_needs(tables: Tables) -> None:
    Stub("open").write(tables)
    at = [("Orders", "broker-a", 0, offset) for offset in range(12)]
    kept = [Logged("open", at[5]), Logged("young", at[6], received_ms=60), Logged("unsure", at[3])]
    kept += [Logged("last", at[9]), Logged("retry", ("%RETRY%packing", "broker-a", 0, 1))]
    kept += [Logged("old", group="billing")]
    for row in (Logged("old", at[4]), *kept):
        row.write(tables)
    tables.run("UPDATE guarantee_log SET effect = 'unknown' WHERE message_id = 'unsure'")
    assert tables.run(tables.say.forget, consumer_group="packing", before_ms=50) == 1
    left = {(row[0], row[1]) for row in tables.ask("SELECT message_id, consumer_group FROM guarantee_log")}
    assert left == {(row.message_id, row.group) for row in kept}


def test_stubs_are_forgotten_when_no_delivery_is_open(tables: Tables) -> None:
    for name in ("done", "open", "rearmed"):
        Stub(name).write(tables)
    for name in ("done", "rearmed"):
        for group in ("packing", "billing"):
            tables.run(tables.say.close, message_id=name, consumer_group=group)
    assert ids(tables, "finished") == ["done", "rearmed"]
    assert ids(tables, "finished", before_ms=0) == []
    tables.run(tables.say.rearm, message_id="rearmed", consumer_group="packing")
    assert [tables.run(tables.say.forget_stub, message_id=name) for name in ("done", "rearmed", "open")] == [1, 0, 0]
    assert sorted(tables.ask("SELECT message_id FROM guarantee_stub")) == [("open",), ("rearmed",)]
    assert ids(tables, "missing") == ["rearmed"]


def test_progress_never_goes_back(tables: Tables) -> None:
    queue = {"consumer_group": "packing", "topic": "Orders", "broker": "b", "queue_id": 0}
    for end in (5, 9, 7):
        tables.run(tables.say.progress, **queue, consumed_to=end)
    assert tables.ask("SELECT consumed_to FROM guarantee_progress") == [(9,)]
