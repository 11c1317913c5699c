"""A sink's decision is one for all groups: two and three groups, tables that are full, groups that are away."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from gantry.client.requests.sink_requests import COMMIT, SinkBatch
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.transaction import decisions
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.groupsplay import DiedError, GroupsPlay

HOUR_MS = 3_600_000
GROUPS = (("a", "b"), ("a", "b", "c"))


def committed(play: GroupsPlay, sink: str, number: int) -> None:
    part = play.write(sink, number)
    play.driver().commit(play.batch(sink, number), [part], play.names)


def decided_batch(play: GroupsPlay, group: str, sink: str) -> int | None:
    known = play.groups[group].batches.decisions.find(sink)
    return None if known is None else known.batch


def fill(play: GroupsPlay, group: str, count: int) -> None:
    """So many young sinks, of which the group is the home."""
    for number in range(count):
        assert play.groups[group].decide(f"other-{number}", 0, "commit", [], home=group).code == 0


@pytest.mark.parametrize("names", GROUPS)
def test_a_sink_that_was_forgotten_begins_again_in_every_group(names: tuple[str, ...]) -> None:
    play = GroupsPlay(*names)
    for number in range(3):
        committed(play, "s", number)
    play.driver().forget(play.batch("s", 0), "ada")
    assert [decided_batch(play, name, "s") for name in names] == [None] * len(names)
    before = len(play.seen())
    for number in range(5):
        part = play.write("s", number)
        play.pass_time(30_000)
        play.driver().commit(play.batch("s", number), [part], names)
    assert len(play.seen()) - before == 5 * 2 * len(names)


@pytest.mark.parametrize("names", GROUPS)
def test_nothing_is_forgotten_while_a_group_has_no_master_or_open_halves(names: tuple[str, ...]) -> None:
    play = GroupsPlay(*names)
    committed(play, "s", 0)
    play.leaderless.add(names[-1])
    with pytest.raises(UnreachableError):
        play.driver().forget(play.batch("s", 0), "ada")
    play.leaderless.clear()
    play.write("s", 1, groups=names[-1:])
    with pytest.raises(RefusedError, match=f"open halves in {names[-1]}"):
        play.driver().forget(play.batch("s", 0), "ada")
    assert [decided_batch(play, name, "s") for name in names] == [0] * len(names)


@pytest.mark.parametrize("names", GROUPS)
def test_a_group_that_missed_the_forgetting_refuses_a_new_query_before_anything_is_decided(
    names: tuple[str, ...],
) -> None:
    play = GroupsPlay(*names)
    for number in range(3):
        committed(play, "s", number)
    play.lost.add(names[-1])
    play.driver().forget(play.batch("s", 0), "ada")
    play.lost.clear()
    before = play.seen()
    part = play.write("s", 0)
    play.pass_time(30_000)
    with pytest.raises(RefusedError, match=f"group {names[-1]} knows batch 2 of sink s, and this is batch 0"):
        play.driver().commit(play.batch("s", 0), [part], names)
    play.pass_time(30_000)
    assert play.seen() == before and decided_batch(play, "a", "s") is None
    play.driver().abort(play.batch("s", 0), [part])
    play.driver().forget(play.batch("s", 0), "ada")
    committed(play, "s", 0)
    assert len(play.seen()) == len(before) + 2 * len(names)


def test_a_sink_is_not_forgotten_while_a_group_that_is_not_registered_has_halves_of_a_decided_batch() -> None:
    play = GroupsPlay("a", "b")
    part = play.write("s", 0)
    play.dies_after = COMMIT
    with pytest.raises(DiedError):
        play.driver().commit(play.batch("s", 0), [part], play.names)
    play.dies_after = ""
    play.lost.add("b")
    play.pass_time(30_000)
    assert len(play.seen("a")) == 2, "what is decided is ended at the home"
    with pytest.raises(UnreachableError, match="group b has halves of it and is not registered"):
        play.driver().forget(play.batch("s", 0), "ada")
    play.lost.clear()
    play.driver().commit(play.batch("s", 0), [part], play.names)
    play.driver().forget(play.batch("s", 0), "ada")
    committed(play, "s", 0)
    assert len(play.seen("a")) == len(play.seen("b")) == 4, "the first batch is whole in both groups"


@pytest.mark.parametrize("names", GROUPS)
def test_a_full_table_in_any_group_is_noticed_before_the_home_decides(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "SINKS_MAX", 2)
    play = GroupsPlay(*names)
    fill(play, names[-1], 2)
    part = play.write("s", 0)
    with pytest.raises(RefusedError, match=f"group {names[-1]} knows 2 sinks") as refused:
        play.driver().commit(play.batch("s", 0), [part], names)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert decided_batch(play, "a", "s") is None and play.seen() == []


def test_a_group_that_has_reserved_a_sink_can_learn_its_decision_whatever_fills_its_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "SINKS_MAX", 2)
    play = GroupsPlay("a", "b")
    part = play.write("s", 0)
    driver = play.driver()
    driver._reserve(play.batch("s", 0), play.names, 0.0)
    fill(play, "b", 1)
    assert play.groups["b"].decide("late", 0, "commit", [], home="b").code == ResponseCode.SYSTEM_BUSY
    driver.commit(play.batch("s", 0), [part], play.names)
    assert len(play.seen()) == 4


def test_sinks_for_one_batch_take_no_room_where_they_wrote_nothing() -> None:
    play = GroupsPlay("a", "b", "c")
    for number in range(10):
        one = SinkBatch(f"batch-{number}", 0, "a", is_passing=True)
        part = play.write(one.sink, 0, groups=["a", "b"])
        play.driver().commit(one, [part], ["a", "b"])
    assert [len(play.groups[name].batches.decisions) for name in "abc"] == [10, 10, 0]
    assert len(play.seen()) == 10 * 4


def test_a_full_table_gives_up_copies_and_passing_sinks_after_an_hour_and_idle_ones_after_ninety_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "SINKS_MAX", 3)
    play = GroupsPlay("a", "b")
    table = play.groups["b"].batches.decisions
    fill(play, "b", 1)
    committed(play, "copy", 0)
    part = play.write("passing", 0, groups=["b"], home="b")
    play.driver().commit(SinkBatch("passing", 0, "b", is_passing=True), [part], ["b"])
    assert set(table.keys()) == {"other-0", "copy", "passing"}
    assert play.groups["b"].decide("new-0", 0, "commit", [], home="b").code == ResponseCode.SYSTEM_BUSY
    play.pass_time(HOUR_MS + 1)
    assert play.groups["b"].decide("new-0", 0, "commit", [], home="b").code == 0
    assert play.groups["b"].decide("new-1", 0, "commit", [], home="b").code == 0
    assert set(table.keys()) == {"other-0", "new-0", "new-1"}
    play.groups["b"].decide("other-0", 0, "done", home="b")
    play.pass_time(90 * 24 * HOUR_MS - 2 * HOUR_MS)
    assert play.groups["b"].decide("new-2", 0, "commit", [], home="b").code == ResponseCode.SYSTEM_BUSY
    play.pass_time(2 * HOUR_MS)
    assert play.groups["b"].decide("new-2", 0, "commit", [], home="b").code == 0
    assert set(table.keys()) == {"new-0", "new-1", "new-2"}
    play.pass_time(100 * 24 * HOUR_MS)
    late = play.groups["b"].decide("new-3", 0, "commit", [], home="b")
    assert late.code == ResponseCode.SYSTEM_BUSY, "what is not done stays"


@pytest.mark.parametrize("names", GROUPS)
def test_a_home_that_left_the_name_server_stays_the_home(names: tuple[str, ...]) -> None:
    play = GroupsPlay(*names)
    part = play.write("s", 0, groups=["a"])
    play.dies_after = COMMIT
    with pytest.raises(DiedError):
        play.driver().commit(play.batch("s", 0), [part], ["a"])
    play.dies_after = ""
    play.lost.add("a")
    assert play.driver().home_of("s") == "a", "no other group was told the decision yet"


def test_a_home_is_refused_by_a_group_that_knows_another() -> None:
    play = GroupsPlay("a", "b")
    committed(play, "s", 0)
    part = play.write("s", 1, home="b")
    with pytest.raises(RefusedError, match="its home is a, and b in this request"):
        play.driver().commit(play.batch("s", 1, home="b"), [part], play.names)
    assert len(play.seen()) == 4


def test_an_unrelated_group_without_a_master_holds_up_no_sink_that_another_group_knows() -> None:
    play = GroupsPlay("a", "b", "c")
    committed(play, "s", 0)
    play.leaderless.add("c")
    assert play.driver().home_of("s") == "a"
    assert play.driver().home_of("made-just-now", is_new=True) in ("a", "b")
    with pytest.raises(UnreachableError, match="group c has no master"):
        play.driver().home_of("t")


def test_a_batch_without_rows_asks_nobody_for_a_reservation() -> None:
    play = GroupsPlay("a", "b")
    play.driver().commit(play.batch("s", 0), [], [])
    assert [code for name, code in play.asked if name == "b"] == [RequestCode.END_BATCH]


@pytest.mark.parametrize("names", GROUPS)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(at, marks=pytest.mark.slow) for at in range(3, 40))])
def test_every_batch_is_whole_in_all_groups_or_in_none_whatever_happens(
    names: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "SINKS_MAX", 4)
    play, chance = GroupsPlay(*names), random.Random(seed)
    sink, number = "s0", 0
    finished = forgotten = passing = 0
    for _ in range(60):
        step = chance.random()
        if step < 0.1:
            (play.leaderless if chance.random() < 0.5 else play.lost).add(chance.choice(names))
        elif step < 0.25:
            play.leaderless.clear()
            play.lost.clear()
        elif step < 0.3:
            play.groups[chance.choice(names)].kill()
            play.pass_time(0)
        elif step < 0.4:
            play.pass_time(chance.choice((30_000, HOUR_MS)))
        elif step < 0.5:
            passing += 1
            one = SinkBatch(f"batch-{passing}", 0, chance.choice(names), is_passing=True)
            part = play.write(one.sink, 0, 1, home=one.home)
            _tried(play, chance, one, part)
        elif step < 0.6 and number and not _opened(play, sink):
            play.chance = chance
            try:
                play.driver().forget(play.batch(sink, 0), "ada")
            except (UnreachableError, OutcomeUnknownError, RefusedError, DiedError):
                pass
            else:
                number, forgotten = 0, forgotten + 1
            play.chance = None
        else:
            part = play.write(sink, number, chance.randint(1, 3))
            said = _tried(play, chance, play.batch(sink, number), part)
            if said == ResponseCode.TRANSACTION_SHOULD_ROLLBACK:
                sink, number = f"{sink}x", 0  # as the refusal says
            elif not said:
                finished += 1
                number += 1
    batches = [key for key in _whole(play) if not key[0].startswith("batch-")]
    assert len(batches) >= finished > 0, "what a driver was told to be committed is there"
    again = Counter((sink, number) for sink, number, _ in batches)
    assert max(again.values()) <= 1 + forgotten, "a batch was written twice"


def _tried(play: GroupsPlay, chance: random.Random, one: SinkBatch, part: str) -> int:
    """Commit; 0 when it is done, the refusal's code, -1 for anything that is tried again."""
    play.chance = chance
    try:
        play.driver().commit(one, [part], play.names)
    except RefusedError as refused:
        return refused.code
    except (UnreachableError, OutcomeUnknownError, DiedError):
        return -1
    finally:
        play.chance = None
    return 0


def _opened(play: GroupsPlay, sink: str) -> bool:
    return any(play.groups[name].listed(sink) for name in play.names)


def _whole(play: GroupsPlay) -> list[tuple[str, str, str]]:
    """Sink, batch and part of what is seen when all ENDs came: whole in every group, and each row once."""
    play.leaderless.clear()
    play.lost.clear()
    for name in play.names:
        play.groups[name].batches.tick()
    play.pass_time(30_000)
    for sink in {sink for name in play.names for sink in play.groups[name].batches.decisions.keys()}:  # noqa: SIM118
        for home in play.names:
            known = play.groups[home].batches.decisions.find(sink)
            if known is not None and known.home == home and known.batch >= 0:
                one = SinkBatch(sink, known.batch, home, known.is_passing)
                play.driver().finish(one, play.driver().decision(one))
    found: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    seen = play.seen()
    assert len(seen) == len(set(seen)), "a row is there twice"
    for key in seen:
        sink, number, part, group, _ = key.split("/")
        found[sink, number, part][group] += 1
    for place, rows in found.items():
        assert set(rows) == set(play.names) and len(set(rows.values())) == 1, f"{place} is not whole: {dict(rows)}"
    return list(found)
