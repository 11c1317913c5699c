from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.errors import StoreError
from gantry.metadata import offsettable
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.store.background import InlineBackground
from gantry.store.statefile import JsonState
from testkit.memory_state import MemoryState
from testkit.offsetbody import body_of
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk


def offsets_of(state: MemoryState | None = None) -> Offsets:
    return Offsets(state or MemoryState(), SimClock())


def test_what_was_committed_is_what_is_found() -> None:
    offsets = offsets_of()
    for group, queue_id, offset in (("g", 0, 10), ("g", 1, 20), ("h", 0, 30)):
        offsets.commit(group, "T", queue_id, offset)
    assert [offsets.query("g", "T", 0), offsets.query("g", "T", 1), offsets.query("h", "T", 0)] == [10, 20, 30]
    assert dict(offsets.of("g", "T")) == {0: 10, 1: 20}


def test_what_was_never_committed_is_not_found() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 10)
    assert [offsets.query(*key) for key in (("g", "T", 1), ("g", "U", 0), ("h", "T", 0))] == [NOT_COMMITTED] * 3
    assert offsets.of("h", "T") == {}


def test_an_offset_set_back_is_obeyed_and_counted() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "T", 0, 4)
    assert offsets.query("g", "T", 0) == 4
    assert offsets.went_back == 1


def test_what_is_saved_is_rocketmqs_document_and_comes_back() -> None:
    state = MemoryState()
    offsets = offsets_of(state)
    offsets.commit("g", "T", 0, 10)
    offsets.commit("%RETRY%g", "%RETRY%g", 3, 7)
    offsets.file.save_if_changed()
    document = state.load()
    assert isinstance(document, dict)
    assert document["offsetTable"] == {"T@g": {"0": 10}, "%RETRY%g@%RETRY%g": {"3": 7}}
    rocketmqs = ["dataVersion", "offsetTable", "pullOffsetTable", "resetOffsetTable"]
    assert sorted(document) == sorted([*rocketmqs, "topicGenerations", "gantryBegins"])
    again = offsets_of(state)
    assert again.query("g", "T", 0) == 10
    assert again.query("%RETRY%g", "%RETRY%g", 3) == 7


def test_only_news_is_saved() -> None:
    state = MemoryState()
    offsets = offsets_of(state)
    offsets.file.save_if_changed()
    assert state.saves == 0
    offsets.commit("g", "T", 0, 10)
    offsets.file.save_if_changed()
    offsets.commit("g", "T", 0, 10)
    offsets.file.save_if_changed()
    assert state.saves == 1


def test_the_tables_of_other_features_are_carried_along() -> None:
    carried = {"offsetTable": {}, "pullOffsetTable": {"T@g": {"0": 5}}, "resetOffsetTable": {"T@g": {"1": 6}}}
    state = MemoryState(carried)
    offsets = offsets_of(state)
    offsets.commit("g", "T", 0, 10)
    offsets.file.save_if_changed()
    document = state.load()
    assert isinstance(document, dict)
    assert document["pullOffsetTable"] == {"T@g": {"0": 5}}
    assert document["resetOffsetTable"] == {"T@g": {"1": 6}}


def test_a_document_of_numbers_or_texts_is_read_alike() -> None:
    offsets = offsets_of(MemoryState({"offsetTable": {"T@g": {"0": "12", "1": 13}}}))
    assert dict(offsets.of("g", "T")) == {0: 12, 1: 13}


def test_a_saved_document_does_not_follow_later_commits() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 10)
    document = body_of(offsets)
    offsets.commit("g", "T", 0, 11)
    assert document["offsetTable"] == {"T@g": {"0": 10}}


def test_groups_and_their_topics_can_be_listed_copied_and_forgotten() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "U", 0, 11)
    offsets.commit("h", "T", 0, 12)
    assert sorted(offsets.groups_of("T")) == ["g", "h"]
    offsets.clone("g", "copy", "T")
    assert offsets.query("copy", "T", 0) == 10
    offsets.remove_group("g")
    assert sorted((group, topic) for group, topic, _ in offsets.all()) == [("copy", "T"), ("h", "T")]


@pytest.mark.parametrize(
    "document",
    [[], {"offsetTable": {"T@g": 5}}, {"offsetTable": {"T@g": {"x": 5}}}, {"offsetTable": {"T@g": {"0": []}}}],
)
def test_a_document_of_another_shape_is_named(document: object) -> None:
    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        offsets_of(MemoryState(document))


def test_an_offset_behind_the_end_of_its_queue_is_set_to_the_end() -> None:
    offsets = Offsets(MemoryState(), SimClock())
    for group, queue_id, offset in (("a", 0, 5), ("a", 1, 3), ("b", 0, 4), ("c", 7, 1)):
        offsets.commit(group, "orders", queue_id, offset)
    ends = {("orders", 0): 4, ("orders", 1): 3}
    bounded = offsets.bound(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    assert bounded == ["orders@a", "orders@c"]
    assert [offsets.of(group, "orders") for group in "abc"] == [{0: 4, 1: 3}, {0: 4}, {7: 0}]
    assert offsets.went_back == 0 and offsets.bound(lambda topic, queue_id: 5) == []


def test_an_offset_behind_the_end_of_a_topic_that_somebody_made_again_begins_at_0() -> None:
    offsets = Offsets(MemoryState({"offsetTable": {"T@g": {"0": 40}, "U@g": {"0": 40}, "T@h": {"0": 7}}}), SimClock())
    assert not offsets.is_numbered
    assert offsets.bound(lambda topic, queue_id: 10, former={"T"}) == ["T@g", "U@g"]
    assert [offsets.query(*key, 0) for key in (("g", "T"), ("g", "U"), ("h", "T"))] == [0, 10, 7]


def many(disk: SimDisk) -> tuple[Offsets, JsonState]:
    """Offsets that take several slices to save."""
    state = JsonState("/config/consumerOffset.json", disk, InlineBackground().housekeeper)
    offsets = Offsets(state, SimClock())
    for number in range(200):
        offsets.commit("g", f"T{number}", 0, number)
    return offsets, state


def test_many_offsets_are_saved_in_slices_and_all_come_back() -> None:
    offsets, state = many(SimDisk())
    saving, steps = offsets.saving(), 0
    while '"T0@g"' not in "".join(offsets._table.lines.lines()):
        steps += next(saving) is None
    offsets.commit("g", "T0", 0, 1000)  # its line is written already
    offsets.commit("g", "late", 0, 7)
    assert steps + len(list(saving)) >= 2
    saved = Offsets(state, SimClock())
    assert [saved.query("g", f"T{number}", 0) for number in range(1, 200)] == list(range(1, 200))
    assert list(offsets.saving()) != []
    saved = Offsets(state, SimClock())
    assert (saved.query("g", "T0", 0), saved.query("g", "late", 0)) == (1000, 7)
    assert list(offsets.saving()) == [], "nothing came since"
    assert state.load() == json.loads(json.dumps(body_of(offsets)))


def test_what_was_removed_and_saved_between_two_slices_does_not_come_back() -> None:
    offsets, state = many(SimDisk())
    saving = offsets.saving()
    next(saving)
    offsets.remove_group("g")
    offsets.file.save_if_changed()
    list(saving)
    assert Offsets(state, SimClock()).of("g", "T0") == {}


def test_a_topic_deleted_between_two_slices_leaves_no_offset_to_its_next_generation() -> None:
    offsets, state = many(SimDisk())
    saving = offsets.saving()
    while '"T0@g"' not in "".join(offsets._table.lines.lines()):
        next(saving)
    offsets.begin_again("T0", 1, ["g"], queues=1)  # its line is written already
    list(saving)
    after_a_crash = Offsets(state, SimClock())
    assert after_a_crash.of("g", "T0"), "the play does not show it"
    assert after_a_crash.catch_up({"T0": 1}, lambda _: True) == ["T0"]
    assert (after_a_crash.of("g", "T0"), after_a_crash.query("g", "T0", 0)) == ({}, 0)


def test_a_mark_lifted_between_two_slices_is_there_where_the_groups_offset_is_not() -> None:
    offsets, state = many(SimDisk())
    offsets.begin_again("T0", 1, ["g"], queues=1)
    saving = offsets.saving()
    next(saving)
    assert (offsets.take_reset("g", "T0", 0, 9), offsets.take_reset("g", "T0", 0, 0)) == (0, None)
    list(saving)
    assert Offsets(state, SimClock()).query("g", "T0", 0) == 0


def test_commits_of_a_marked_queue_count_for_nothing_until_somebody_pulled() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 9)
    offsets.reset("g", "T", 0, 4, marks=True)
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 1, 5)
    assert (offsets.query("g", "T", 0), offsets.query("g", "T", 1)) == (4, 5)
    assert offsets.take_reset("g", "T", 1, 5) is None
    assert (offsets.take_reset("g", "T", 0, 4), offsets.take_reset("g", "T", 0, 4)) == (4, None)
    offsets.commit("g", "T", 0, 9)
    assert offsets.query("g", "T", 0) == 9


def test_who_was_told_and_pulls_there_is_not_told_again() -> None:
    offsets = offsets_of()
    assert not offsets.was_told("g", "T", 0)
    offsets.reset("g", "T", 0, 4, marks=True)
    assert offsets.was_told("g", "T", 0)
    assert offsets.take_reset("g", "T", 0, 4) is None
    assert not offsets.marks


def test_marks_are_saved_and_go_with_their_topic_and_with_the_next_reset() -> None:
    state = MemoryState()
    offsets = offsets_of(state)
    offsets.reset("g", "T", 0, 4, marks=True)
    offsets.file.save_if_changed()
    again = offsets_of(state)
    assert again.is_reset("g", "T", 0)
    again.reset("g", "T", 0, 3, marks=False)
    assert not again.marks and again.query("g", "T", 0) == 3
    offsets.remove_group("g")
    assert not offsets.marks


def test_what_a_deleted_topic_leaves_is_a_mark_at_zero_for_everybody_who_read_it() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 3, 9)
    offsets.commit("g", "T2", 0, 5)
    offsets.begin_again("T", 1, ["live"], queues=2)
    assert offsets.groups_of("T") == [] and offsets.query("g", "T2", 0) == 5
    assert [offsets.query("live", "T", queue_id) for queue_id in (0, 1, 2)] == [0, 0, -1]
    assert offsets.query("g", "T", 3) == 0 and offsets.query("other", "T", 0) == -1
    offsets.commit("g", "T", 3, 10)
    assert offsets.groups_of("T") == [], "it speaks of the topic that is gone"
    assert [offsets.take_reset("g", "T", 3, pulled) for pulled in (9, 9, 0)] == [0, 0, None]
    assert offsets.query("g", "T", 3) == 0 and not offsets.is_reset("g", "T", 3)
    offsets.commit("g", "T", 3, 1)
    assert offsets.of("g", "T") == {3: 1}


def test_a_reader_that_goes_elsewhere_once_it_was_told_is_let_go() -> None:
    offsets = offsets_of()
    offsets.begin_again("T", 1, ["g", "at zero"], queues=1)
    assert [offsets.take_reset("g", "T", 0, pulled) for pulled in (9, 4)] == [0, None]
    assert offsets.take_reset("at zero", "T", 0, 0) is None, "it has nothing to forget"
    assert not offsets.marks


def test_members_of_a_broadcasting_group_are_told_one_by_one_and_leave_no_offsets() -> None:
    offsets = offsets_of()
    offsets.begin_again("T", 1, ["g@a", "g@b"], queues=1)
    assert [offsets.take_reset("g@a", "T", 0, pulled) for pulled in (9, 0)] == [0, None]
    assert offsets.take_reset("g@b", "T", 0, 9) == 0 and offsets.groups_of("T") == []
    offsets.remove_group("g")
    assert not offsets.marks


def test_a_start_drops_the_offsets_of_a_topic_whose_deletion_the_store_alone_remembers() -> None:
    state = MemoryState()
    offsets = offsets_of(state)
    offsets.begin_again("seen", 1)
    for topic in ("seen", "T", "plain"):
        offsets.commit("g", topic, 0, 7)
    offsets.file.save_if_changed()
    again = offsets_of(state)
    assert again.catch_up({"seen": 1, "T": 2}, lambda _: True) == ["T"]
    assert [again.query("g", topic, 0) for topic in ("seen", "T", "plain")] == [7, 0, 7]
    again.file.save_if_changed()
    assert offsets_of(state).catch_up({"seen": 1, "T": 2}, lambda _: True) == []


def test_a_generation_that_the_store_took_back_may_be_given_again() -> None:
    offsets = offsets_of()
    offsets.begin_again("T", 3)
    assert offsets.catch_up({"T": 1}, lambda _: True) == []
    offsets.commit("g", "T", 0, 7)
    assert offsets.catch_up({"T": 2}, lambda _: True) == ["T"] and offsets.query("g", "T", 0) == 0


def test_a_document_that_counts_no_generations_is_taken_as_it_is() -> None:
    offsets = offsets_of()
    offsets.commit("g", "T", 0, 7)
    assert offsets.catch_up({"T": 2}, lambda _: True) == [] and offsets.query("g", "T", 0) == 7
    assert offsets.catch_up({"T": 3}, lambda _: True) == ["T"]


def test_marks_of_a_topic_that_is_gone_for_good_go_at_a_start() -> None:
    offsets = offsets_of()
    offsets.begin_again("gone", 1, ["g"], queues=1)
    offsets.begin_again("young", 2, ["g"], queues=1)
    offsets.catch_up({"young": 2}, lambda _: False)
    assert not offsets.is_reset("g", "gone", 0) and offsets.is_reset("g", "young", 0)


def test_what_was_changed_before_a_save_is_saved_whatever_else_saves_meanwhile() -> None:
    offsets, state = many(SimDisk())
    earlier = offsets.saving()
    next(earlier)
    offsets.remove_group("g")
    offsets.commit("h", "T0", 0, 5)
    mine = offsets.saved()
    for number in range(200):
        offsets.commit("h", f"T{number}", 0, 5)
    mine.send(None)
    list(earlier)
    with pytest.raises(StopIteration):
        while True:
            mine.send(None)
    saved = Offsets(state, SimClock())
    assert (saved.of("g", "T0"), saved.query("h", "T0", 0)) == ({}, 5)


def test_a_save_that_is_always_overtaken_is_done_at_once() -> None:
    offsets, state = many(SimDisk())
    mine = offsets.saved()
    with pytest.raises(StopIteration):
        while True:
            mine.send(None)
            offsets.commit("g", "T1", 0, offsets.query("g", "T1", 0) + 1)
            offsets.file.save_if_changed()
    assert Offsets(state, SimClock()).query("g", "T199", 0) == 199


def test_a_save_costs_what_has_changed_and_not_what_there_is() -> None:
    steps = []
    for count in (1000, 10_000):
        offsets = many(SimDisk())[0]
        for number in range(count):
            offsets.commit("h", f"T{number}", 0, number)
        list(offsets.saving())
        for number in range(50):
            offsets.commit("h", f"T{number * 7}", 0, 2 * number + 1)
        steps.append(len(list(offsets.saving())))
    assert max(steps) <= 50


def test_a_group_or_a_topic_has_no_more_offsets_than_are_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsettable, "KEYS_MAX", 20)
    offsets = Offsets(MemoryState(), SimClock())
    for number in range(20):
        if offsets.has_room("g", f"T{number}"):
            offsets.commit("g", f"T{number}", 0, 1)
    assert len(offsets.topics_of("g")) == 10 and offsets.has_room("g", "T0") and not offsets.has_room("g", "T10")
    for number in range(20):
        if offsets.has_room(f"g{number}", "T99"):
            offsets.commit(f"g{number}", "T99", 0, 1)
    assert len(offsets.groups_of("T99")) == 5 and offsets.has_room("h", "T50")
    offsets.remove_group("g")
    assert offsets.topics_of("g") == [] and offsets.has_room("h", "T99")
    offsets.begin_again("T99", 1)
    assert offsets.groups_of("T99") == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("commit"), st.sampled_from("gh"), st.sampled_from("TU"), st.integers(0, 3)),
            st.tuples(st.just("reset"), st.sampled_from("gh"), st.sampled_from("TU"), st.integers(0, 3)),
            st.tuples(st.just("remove"), st.sampled_from("gh"), st.just("T"), st.just(0)),
            st.tuples(st.just("again"), st.just("g"), st.sampled_from("TU"), st.integers(0, 3)),
            st.tuples(st.just("take"), st.sampled_from("gh"), st.sampled_from("TU"), st.integers(0, 3)),
            st.tuples(st.just("follow"), st.sampled_from("gh"), st.sampled_from("TU"), st.integers(0, 3)),
            st.tuples(st.just("save"), st.just("g"), st.just("T"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_what_is_saved_in_slices_is_the_document(drawn: list[tuple[str, str, str, int]]) -> None:
    state = MemoryState()
    offsets = Offsets(state, SimClock())
    for what, group, topic, number in drawn:
        match what:
            case "commit":
                offsets.commit(group, topic, number % 2, number)
            case "reset":
                offsets.reset(group, topic, 0, number, marks=number > 1)
            case "remove":
                offsets.remove_group(group)
            case "again":
                offsets.begin_again(topic, number, [group], queues=1)
            case "take":
                offsets.take_reset(group, topic, 0, number)
            case "follow":
                offsets.follow(f"{topic}@{group}", {"0": number} if number else None)
                offsets.follow_marks(f"{topic}@{group}", {"0": number} if number > 1 else None)
                offsets.follow_begins(f"{topic}@{group}", [number, number] if number > 1 else None)
                offsets.follow_places(f"{topic}@{group}", {"0": number} if number else None)
            case _:
                list(offsets.saving())
    offsets.file.is_changed = True
    list(offsets.saving())
    assert state.load() == json.loads(json.dumps(body_of(offsets)))
