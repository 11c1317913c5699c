"""Which deliveries are sent again: the SQL against a model that knows no SQL, on four real databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantry.guarantee import statements
from testkit.guaranteetables import DATABASES, Logged, Place, Rules, Stub, Tables, missing, opened, placed

TOPICS = st.sampled_from(["Orders", "Orders", "%RETRY%packing"])
PLACES = st.tuples(TOPICS, st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 1), st.integers(0, 6))
GROUPS = st.sampled_from(["packing", "packing", "billing"])
STUBS = st.lists(
    st.builds(
        Stub,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["open", "open", "open", "confirmed", "void", "closed", "legacy"]),
        st.integers(2, 5),
        st.integers(98, 102),
        st.none() | PLACES,
        GROUPS,
        st.sampled_from([False, False, True]),
        st.integers(0, 2),
    ),
    unique_by=lambda stub: stub.message_id,
    max_size=8,
)
LOGGED = st.lists(
    st.builds(Logged, st.sampled_from("abcdefghxyz"), PLACES, GROUPS),
    unique_by=lambda row: (row.message_id, row.group),
    max_size=8,
)
PROGRESS = st.dictionaries(PLACES.map(lambda place: place[:3]), st.integers(0, 6), max_size=3)
PASSED: Place = ("Orders", "broker-a", 0, 9)
OTHER = {"packing": "billing", "billing": "packing"}
# One delivery of each kind that only one condition keeps back; without that condition it would be sent again.
KEPT_BACK = {
    "unconfirmed": Stub("kept", state="confirmed"),
    "may be sent again": Stub("kept", resends=4, before=1),
    "due": Stub("kept", due_ms=101),
    "no backlog": Stub("kept", place=PASSED),
    "not arrived": Stub("kept"),
}


@pytest.fixture(scope="module", params=DATABASES)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    with opened(request.param) as made:
        yield made


def sent_again(tables: Tables, rows: list[Stub | Logged], rules: Rules, *without: str) -> set[str]:
    tables.empty()
    for row in rows:
        row.write(tables)
    conditions = [text for name, text in statements.CONDITIONS.items() if name not in without]
    asked = tables.of(statements.deliveries_where(conditions)) if without else tables.say.missing
    return {row[0] for row in tables.ask(asked, **rules.parameters())}


@settings(max_examples=60)
@given(stubs=STUBS, logged=LOGGED, progress=PROGRESS, resends_max=st.integers(1, 4))
@example([Stub("a", resends=2)], [Logged("x", ("%RETRY%packing", "broker-a", 0, 9))], {}, 3)
@example([Stub("a", resends=2)], [Logged("x", ("Orders", "broker-a", 0, 6))], {}, 3)
@example([Stub("a", resends=2)], [], {("Orders", "broker-a", 0): 6}, 3)
@example([Stub("a", resends=2, place=None)], [], {}, 3)
def test_what_is_sent_again_is_what_the_model_says(
    tables: Tables,
    stubs: list[Stub],
    logged: list[Logged],
    progress: dict[tuple[str, str, int], int],
    resends_max: int,
) -> None:
    tables.empty()
    for (topic, broker, queue), end in progress.items():
        where = {"topic": topic, "broker": broker, "queue_id": queue}
        tables.run(tables.say.progress, consumer_group="packing", **where, consumed_to=end)
        tables.run(tables.say.progress, consumer_group="packing", **where, consumed_to=end - 1)
    for row in (*stubs, *logged):
        row.write(tables)
    for group in ("packing", "billing"):
        rules = Rules(resends_max=resends_max, group=group)
        found = {row[0] for row in tables.ask(tables.say.missing, **rules.parameters())}
        # The delivery to the other group is as the producer made it: nobody knows where it is.
        others = [Stub(each.message_id, due_ms=each.due_ms, place=None, group=OTHER[each.group]) for each in stubs]
        assert found == missing([*stubs, *others], logged, progress if group == "packing" else {}, rules)


@pytest.mark.parametrize("condition", statements.CONDITIONS)
def test_each_of_the_five_conditions_keeps_back_what_no_other_does(tables: Tables, condition: str) -> None:
    stub = KEPT_BACK[condition]
    logged = [Logged("other", PASSED)]
    logged += [Logged("kept", ("Orders", "broker-a", 0, 5))] * (condition == "not arrived")
    assert not missing([stub], logged, {}, Rules())
    assert sent_again(tables, [stub, *logged], Rules()) == set()
    assert sent_again(tables, [stub, *logged], Rules(), condition) == {"kept"}


def test_what_one_group_confirmed_is_sent_again_to_the_group_that_has_not(tables: Tables) -> None:
    rows = [Stub("a"), Logged("a"), Logged("b", ("Orders", "broker-a", 0, 9)), Logged("b", PASSED, "billing")]
    assert sent_again(tables, rows, Rules()) == set()
    assert tables.run(tables.say.confirm, message_id="a", consumer_group="packing") == 1
    assert sent_again(tables, rows, Rules(group="billing")) == {"a"}


def test_what_was_sent_again_is_not_missing_until_the_group_has_passed_its_new_place(tables: Tables) -> None:
    tables.empty()
    for row in (Stub("lost"), Logged("other", PASSED)):
        row.write(tables)

    def found(now_ms: int) -> list[str]:
        return [row[0] for row in tables.ask(tables.say.missing, **Rules(now_ms).parameters())]

    this = {"message_id": "lost", "consumer_group": "packing"}
    assert found(100) == ["lost"]
    assert tables.run(tables.say.claim, **this, resends=0, next_resend_at_ms=200) == 1
    assert found(200) == ["lost"], "as long as nobody says where it is now"
    assert tables.run(tables.say.moved, **this, resends=1, **placed(("%RETRY%packing", "broker-a", 1, 3))) == 1
    assert found(200) == []
    Logged("in the topic", ("Orders", "broker-a", 1, 9)).write(tables)
    Logged("before", ("%RETRY%packing", "broker-a", 1, 2)).write(tables)
    assert found(200) == []
    Logged("after", ("%RETRY%packing", "broker-a", 1, 4)).write(tables)
    assert found(200) == ["lost"]


def test_there_are_five_conditions() -> None:
    assert list(statements.CONDITIONS) == list(KEPT_BACK)
