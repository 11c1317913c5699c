"""Which stubs are sent again: the SQL against a model that knows no SQL, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantry.guarantee import schema
from testkit.guaranteetables import Logged, Rules, Stub, Tables, in_postgresql, in_sqlite, missing
from testkit.postgres import running_postgres

IDS = st.sampled_from("abcdefgh")
PLACES = st.tuples(st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 1), st.integers(0, 6))
STUBS = st.lists(
    st.builds(
        Stub,
        IDS,
        st.sampled_from(["unconfirmed", "unconfirmed", "confirmed", "void"]),
        st.integers(0, 4),
        st.integers(98, 102),
        st.none() | PLACES,
    ),
    unique_by=lambda stub: stub.message_id,
    max_size=8,
)
LOGGED = st.lists(
    st.builds(
        Logged,
        st.sampled_from("abcdefghxyz"),
        PLACES,
        st.sampled_from(["packing", "packing", "billing"]),
        topic=st.sampled_from(["Orders", "Orders", "Returns"]),
    ),
    unique_by=lambda row: (row.message_id, row.group),
    max_size=8,
)
# One stub of each kind that only one condition keeps back; without that condition it would be sent again.
KEPT_BACK = {
    "unconfirmed": Stub("kept", status="confirmed"),
    "may be sent again": Stub("kept", resends=3),
    "due": Stub("kept", due_ms=101),
    "no backlog": Stub("kept", place=("broker-a", 0, 9)),
    "not arrived": Stub("kept"),
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    if request.param == "sqlite":
        with in_sqlite() as here:
            yield here
        return
    with running_postgres() as server, in_postgresql(server.database()) as there:
        yield there


def sent_again(tables: Tables, stubs: list[Stub], logged: list[Logged], rules: Rules, *without: str) -> set[str]:
    tables.empty()
    for row in (*stubs, *logged):
        row.write(tables)
    conditions = [text for name, text in schema.CONDITIONS.items() if name not in without]
    asked = schema.in_words_of(tables.dialect, schema.stubs_where(conditions)) if without else tables.say.missing
    return {row[0] for row in tables.ask(asked, **rules.parameters())}


@settings(max_examples=60)
@given(stubs=STUBS, logged=LOGGED, resends_max=st.integers(1, 4))
@example(stubs=[Stub("a", place=("broker-a", 0, 5))], logged=[Logged("x", ("broker-a", 0, 6))], resends_max=1)
def test_what_is_sent_again_is_what_the_model_says(
    tables: Tables, stubs: list[Stub], logged: list[Logged], resends_max: int
) -> None:
    rules = Rules(resends_max=resends_max)
    assert sent_again(tables, stubs, logged, rules) == missing(stubs, logged, rules)


@pytest.mark.parametrize("condition", schema.CONDITIONS)
def test_each_of_the_five_conditions_keeps_back_what_no_other_does(tables: Tables, condition: str) -> None:
    stub = KEPT_BACK[condition]
    logged = [Logged("other", ("broker-a", 0, 9))] + [Logged("kept", ("broker-a", 0, 5))] * (condition == "not arrived")
    assert not missing([stub], logged, Rules())
    assert sent_again(tables, [stub], logged, Rules()) == set()
    assert sent_again(tables, [stub], logged, Rules(), condition) == {"kept"}


def test_what_was_sent_again_is_not_missing_until_the_group_has_passed_its_new_place(tables: Tables) -> None:
    tables.empty()
    for row in (Stub("lost"), Logged("other", ("broker-a", 0, 9))):
        row.write(tables)

    def found(now_ms: int) -> list[str]:
        return [row[0] for row in tables.ask(tables.say.missing, **Rules(now_ms).parameters())]

    assert found(100) == ["lost"]
    assert tables.run(tables.say.claim, message_id="lost", resends=0, next_resend_at_ms=200) == 1
    assert found(200) == ["lost"], "as long as nobody says where it is now"
    place = {"broker": "broker-a", "queue_id": 1, "queue_offset": 3}
    assert tables.run(tables.say.moved, message_id="lost", resends=1, **place) == 1
    assert found(200) == []
    Logged("before", ("broker-a", 1, 2)).write(tables)
    assert found(200) == []
    Logged("after", ("broker-a", 1, 4)).write(tables)
    assert found(200) == ["lost"]


def test_there_are_five_conditions() -> None:
    assert list(schema.CONDITIONS) == list(KEPT_BACK)
