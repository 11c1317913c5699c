"""The tables and statements of the guarantee, on SQLite; PostgreSQL's in tests/properties and tests/crash."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gantry.guarantee import schema
from testkit.guaranteetables import Logged, Rules, Stub, Tables, in_sqlite
from testkit.sources import ROOT, SOURCE

DOCUMENT = ROOT / "broker/docs/guarantee.md"


@pytest.fixture
def tables() -> Iterator[Tables]:
    with in_sqlite() as made:
        yield made


def ids(tables: Tables, text: str, **more: object) -> list[str]:
    return [row[0] for row in tables.ask(text, **{**Rules().parameters(), **more})]


def test_the_schema_needs_nothing_but_the_standard_library() -> None:
    code = "import sys; import gantry.guarantee.schema; print(*(n for n in ('psycopg', 'sqlite3') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=SOURCE, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_new_database_gets_this_version_and_one_of_this_version_nothing(tables: Tables) -> None:
    assert tables.ask(tables.say.version) == [(schema.VERSION,)]
    assert schema.create(schema.SQLITE, schema.VERSION) == []


def test_tables_of_a_newer_release_are_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="version 2, this release knows up to 1; install a newer one"):
        schema.create(schema.POSTGRESQL, 2)


def test_a_message_is_logged_once_by_each_group(tables: Tables) -> None:
    rows = (Logged("a"), Logged("a"), Logged("a", group="billing"))
    assert [row.write(tables) for row in rows] == [1, 0, 1]


def test_only_one_of_two_who_saw_the_same_count_may_send_again(tables: Tables) -> None:
    Stub("a").write(tables)
    claim = {"message_id": "a", "resends": 0, "next_resend_at_ms": 200}
    assert [tables.run(tables.say.claim, **claim), tables.run(tables.say.claim, **claim)] == [1, 0]
    assert tables.run(tables.say.confirm, message_id="a") == 1
    assert tables.run(tables.say.claim, **{**claim, "resends": 1}) == 0


def test_a_stub_that_is_withdrawn_in_time_is_never_asked_for_again(tables: Tables) -> None:
    for stub in (Stub("missing"), Stub("often", resends=3), Stub("nowhere", place=None), Stub("came")):
        stub.write(tables)
    for row in (Logged("came"), Logged("other", ("broker-a", 0, 20))):
        row.write(tables)
    asked = ("missing", "exhausted", "unplaced", "stuck")
    assert [ids(tables, getattr(tables.say, name), before_ms=50) for name in asked] == [
        ["missing"], ["often"], ["nowhere"], ["came"],
    ]  # fmt: skip
    for name in ("missing", "often", "nowhere", "came"):
        assert tables.run(tables.say.void, message_id=name) == 1
        assert tables.ask(tables.say.withdrawn, message_id=name) == [(1,)]
        assert tables.run(tables.say.void, message_id=name) == 0
        assert tables.run(tables.say.confirm, message_id=name) == 0
    assert [ids(tables, getattr(tables.say, name), before_ms=50) for name in asked] == [[], [], [], []]
    assert tables.run(tables.say.claim, message_id="missing", resends=0, next_resend_at_ms=200) == 0


def test_a_stub_that_had_its_effect_is_not_withdrawn_any_more(tables: Tables) -> None:
    Stub("a").write(tables)
    assert tables.run(tables.say.confirm, message_id="a") == 1
    assert tables.run(tables.say.void, message_id="a") == 0
    assert tables.ask(tables.say.withdrawn, message_id="a") == []
    assert tables.run(tables.say.void, message_id="unheard of") == 0


def test_a_stub_whose_effect_was_refused_is_open_again_unless_it_is_void(tables: Tables) -> None:
    for name, status in (("refused", "confirmed"), ("void", "void")):
        Stub(name, status=status).write(tables)
        Logged(name).write(tables)
    assert [tables.run(tables.say.reopen, message_id=name) for name in ("refused", "void")] == [1, 0]
    assert ids(tables, tables.say.stuck, before_ms=50) == ["refused"]
    assert ids(tables, tables.say.missing) == [], "it has arrived"
    assert tables.run(tables.say.void, message_id="refused") == 1


def test_a_stub_stands_where_it_was_sent_last_no_matter_who_says_so_late(tables: Tables) -> None:
    Stub("a", place=("broker-a", 0, 5), resends=1).write(tables)
    first = {"message_id": "a", "broker": "broker-a", "queue_id": 1, "queue_offset": 7}
    assert tables.run(tables.say.claim, message_id="a", resends=1, next_resend_at_ms=200) == 1
    second = {**first, "broker": "broker-b", "queue_offset": 3}
    assert tables.run(tables.say.moved, **second, resends=2) == 1
    assert tables.run(tables.say.moved, **first, resends=1) == 0
    assert tables.run(tables.say.place, **first) == 0
    assert tables.ask("SELECT broker, queue_id, queue_offset FROM message_stub") == [("broker-b", 1, 3)]


def test_a_stub_without_a_place_is_for_a_person_when_it_is_due(tables: Tables) -> None:
    for stub in (Stub("nowhere", place=None), Stub("placed"), Stub("early", place=None, due_ms=101)):
        stub.write(tables)
    assert ids(tables, tables.say.unplaced) == ["nowhere"]


def test_a_stub_that_was_sent_often_enough_is_for_a_person(tables: Tables) -> None:
    for name in ("often", "arrived"):
        Stub(name, resends=3).write(tables)
    for stub in (Stub("waits", resends=3, due_ms=101), Stub("new")):
        stub.write(tables)
    Logged("arrived").write(tables)
    assert ids(tables, tables.say.exhausted) == ["often"]


def test_a_message_that_arrived_long_ago_without_effect_is_for_a_person(tables: Tables) -> None:
    for stub in (Stub("stuck"), Stub("just came"), Stub("done", status="confirmed")):
        stub.write(tables)
        Logged(stub.message_id, received_ms=60 if stub.message_id == "just came" else 10).write(tables)
    assert ids(tables, tables.say.stuck, before_ms=50) == ["stuck"]


def test_log_rows_are_forgotten_by_age_but_those_that_a_condition_needs(tables: Tables) -> None:
    Stub("open").write(tables)
    kept = [Logged("open", ("broker-a", 0, 5)), Logged("young", ("broker-a", 0, 6), received_ms=60)]
    kept += [Logged("last", ("broker-a", 0, 9)), Logged("alone", ("broker-b", 0, 1)), Logged("old", group="billing")]
    for row in (Logged("old", ("broker-a", 0, 4)), *kept):
        row.write(tables)
    assert tables.run(tables.say.forget, consumer_group="packing", before_ms=50) == 1
    left = {(row[0], row[1]) for row in tables.ask("SELECT message_id, consumer_group FROM message_log")}
    assert left == {(row.message_id, row.group) for row in kept}


def test_a_place_is_known_as_a_whole_or_not_at_all(tables: Tables) -> None:
    Stub("a", place=None).write(tables)
    with pytest.raises(sqlite3.IntegrityError):
        tables.run(tables.say.place, message_id="a", broker="broker-a", queue_id=None, queue_offset=5)


def test_parameters_are_rendered_and_casts_and_percent_signs_survive() -> None:
    text = "SELECT :body::jsonb ->> 'a:b' LIKE '5%' AND x = :x"
    assert schema.in_words_of(schema.SQLITE, text) == text
    rendered = "SELECT %(body)s::jsonb ->> 'a:b' LIKE '5%%' AND x = %(x)s"
    assert schema.in_words_of(schema.POSTGRESQL, text) == rendered


def test_the_document_shows_the_tables_and_the_question_as_they_are_made() -> None:
    made = ";\n\n".join(schema.create(schema.POSTGRESQL)) + ";\n"
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"```sql\n{made}```" in text, f"broker/docs/guarantee.md should show\n{made}"
    missing = schema.statements(schema.SQLITE).missing
    assert " ".join(missing.split()) in " ".join(text.split()), f"broker/docs/guarantee.md should show\n{missing}"
    assert schema.create(schema.SQLITE) == [each.replace("BYTEA", "BLOB") for each in schema.create(schema.POSTGRESQL)]


def test_the_document_shows_the_five_conditions() -> None:
    text = schema.stubs_where(schema.CONDITIONS.values())
    assert f"```sql\n{text};\n```" in DOCUMENT.read_text(encoding="utf-8"), text
