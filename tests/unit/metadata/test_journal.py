"""What slaves are told about tables, and how little of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.metadata import journal as journals
from gantry.metadata.journal import ALL, GRAVE, GROUP, OFFSET, TOPIC, Journal
from gantry.wire import ha


class Follower:
    """Takes changes over as a slave does, which skips a batch that does not have a higher number than all before it."""

    def __init__(self) -> None:
        self.number = 0
        self.skipped: list[object] = []
        self.tables: dict[str, dict[str, object]] = {TOPIC: {}, GROUP: {}}

    def catch_up(self, journal: Journal, rest: Callable[[], object] = lambda: None) -> int:
        """rest: what happens between two batches."""
        changes_seen = 0
        for number, changes in journal.after(self.number):
            if number <= self.number:
                self.skipped += changes
                continue
            self.number = number
            for change in changes:
                assert isinstance(change, list)
                table, key, value = change
                changes_seen += 1
                if table == ALL:
                    assert value.pop(journals.LOG_START) == 0
                    for name, keys in value.items():
                        self.tables[name] = {each: kept for each, kept in self.tables[name].items() if each in keys}
                elif value is None:
                    self.tables[table].pop(key, None)
                else:
                    self.tables[table][key] = value
            rest()
        assert not self.skipped
        return changes_seen


def made(tables: dict[str, dict[str, object]]) -> Journal:
    journal = Journal()
    for name, table in tables.items():
        journal.carry(name, list(table), table.get)
    return journal


def test_a_new_slave_is_told_everything_once() -> None:
    tables: dict[str, dict[str, object]] = {TOPIC: {f"t{n}": n for n in range(1000)}, GROUP: {"g": 1}}
    journal, follower = made(tables), Follower()
    follower.tables[TOPIC]["left over"] = 1
    assert follower.catch_up(journal) == 1002
    assert follower.tables == tables and follower.number == journal.number
    assert follower.catch_up(journal) == 0


def test_what_there_is_at_all_is_said_with_the_beginning_of_the_log_and_without_lives_that_were_forgotten() -> None:
    lives: dict[str, object] = {"forgotten": [1, 10], "kept": [2, 20]}
    journal = Journal(lambda: 15)
    journal.carry(GRAVE, list(lives), lives.get)
    del lives["forgotten"]
    ((_, changes),) = journal.after(0)
    assert changes[0] == [ALL, "", {GRAVE: ["kept"], journals.LOG_START: 15}]


def test_of_many_changes_of_one_thing_only_the_newest_is_told() -> None:
    tables: dict[str, dict[str, object]] = {TOPIC: {"a": 0, "b": 0}, GROUP: {}}
    journal, follower = made(tables), Follower()
    follower.catch_up(journal)
    for number in range(100):
        tables[TOPIC]["a"] = number
        journal.changed(TOPIC, "a")
    assert follower.catch_up(journal) == 1 and follower.tables == tables


def test_one_that_waits_for_changes_hears_of_them() -> None:
    journal, heard = made({TOPIC: {"a": 1}}), []
    journal.listen(lambda: heard.append(journal.number))
    journal.changed(TOPIC, "a")
    assert heard == [journal.number]


def test_too_many_deleted_things_are_forgotten_and_the_slave_hears_all_instead() -> None:
    tables: dict[str, dict[str, object]] = {TOPIC: {"a": 1}, GROUP: {}}
    journal, follower = made(tables), Follower()
    follower.catch_up(journal)
    for number in range(journals._GONE_MAX + 5):
        journal.changed(TOPIC, f"gone {number}")
    assert len(journal._latest) <= journals._GONE_MAX + 2
    follower.tables[TOPIC]["gone 0"] = 1
    follower.catch_up(journal)
    assert follower.tables == tables


def test_no_frame_of_a_link_is_too_long_for_a_slave_however_many_queues_groups_have_read() -> None:
    queues = {str(queue): 10**12 + queue for queue in range(4096)}
    tables: dict[str, dict[str, object]] = {OFFSET: {f"orders@group-{number}": queues for number in range(300)}}
    frames = [len(ha.metadata(number, changes)) for number, changes in made(tables).after(0)]
    assert sum(frames) > ha.FRAME_BYTES_MAX and max(frames) < ha.FRAME_BYTES_MAX / 4


def test_a_table_with_too_many_names_is_left_out_of_what_there_is_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_NAMES_CHARS_MAX", 500)
    tables: dict[str, dict[str, object]] = {TOPIC: {"orders": 1}, OFFSET: {f"orders@g{n}": {"0": n} for n in range(99)}}
    ((_, changes),) = made(tables).after(0)
    assert changes[0] == [ALL, "", {TOPIC: ["orders"], journals.LOG_START: 0}]
    assert len(changes) == 101, "each thing itself is told"


@given(st.lists(st.tuples(st.sampled_from([TOPIC, GROUP]), st.integers(0, 5), st.integers(0, 3), st.booleans())))
def test_a_slave_that_catches_up_whenever_it_likes_has_the_same_tables(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    tables: dict[str, dict[str, object]] = {TOPIC: {"x": 1}, GROUP: {}}
    journal, follower, late = made(tables), Follower(), Follower()
    for table, key, value, catches_up in steps:
        if value:
            tables[table][str(key)] = value
        else:
            tables[table].pop(str(key), None)
        journal.changed(table, str(key))
        if catches_up:
            follower.catch_up(journal)
            assert follower.tables == tables
    late.catch_up(journal)
    assert late.tables == tables


@pytest.mark.parametrize("topics", [["a", "b"], []])
def test_parts_of_an_entry_are_batches_with_numbers_of_their_own_and_only_the_last_has_its_number(
    topics: list[str],
) -> None:
    journal = Journal()
    journal.carry(TOPIC, topics, dict.fromkeys(topics, 1).get)
    journal.carry(journals.QUEUES, [""], lambda _: iter([{"T": {"0": number}} for number in range(5)]))
    whole = journal.number
    journal.carry(GROUP, ["g"], {"g": 1}.get)
    batches = list(journal.after(0))
    told = [change[2] for _, changes in batches for change in changes if change[0] == journals.QUEUES]  # type: ignore[index]
    assert told == [{"T": {"0": number}} for number in range(5)]
    numbers = [number for number, _ in batches]
    assert numbers == sorted(set(numbers)) and numbers[0] > 0, "a slave skips a number that it has"
    parts = [number for number, changes in batches for change in changes if change[0] == journals.QUEUES]  # type: ignore[index]
    assert [number >= whole for number in parts] == [False] * 4 + [True], "it does not have the entry before"


def test_a_slave_with_a_number_has_every_change_up_to_it_also_where_entries_changed_while_a_reader_rests() -> None:
    offsets: dict[str, object] = {f"t@g{number}": 1 for number in range(1000)}
    topics: dict[str, object] = {}
    journal = made({OFFSET: offsets, TOPIC: topics})
    before = journal.number
    for name in list(offsets)[:300]:
        journal.changed(OFFSET, name)
    for name in ("kept", "deleted"):
        topics[name] = 1
        journal.changed(TOPIC, name)
    made_number = journal.number
    for name in list(offsets)[300:]:
        journal.changed(OFFSET, name)
    batches = journal.after(before)
    next(batches)
    topics["kept"] = 2
    del topics["deleted"]
    journal.changed(TOPIC, "kept")
    journal.changed(TOPIC, "deleted")
    told: dict[str, object] = {}
    for number, changes in batches:
        told |= {change[1]: change[2] for change in changes if change[0] == TOPIC}  # type: ignore[index]
        assert number < made_number or told == {"kept": 2, "deleted": None}
    assert told
    (last,) = journal.after(number)
    assert last == (journal.number, [[TOPIC, "kept", 2], [TOPIC, "deleted", None]])


def test_a_change_that_was_made_again_before_the_pass_is_not_counted_as_told_before_the_entry_is() -> None:
    offsets: dict[str, object] = {f"t@g{number}": 1 for number in range(1000)}
    topics: dict[str, object] = {}
    journal = made({OFFSET: offsets, TOPIC: topics})
    before = journal.number
    topics["new"] = 1
    journal.changed(TOPIC, "new")
    answered = journal.number
    for name in offsets:
        journal.changed(OFFSET, name)
    topics["new"] = 2
    journal.changed(TOPIC, "new")
    told: list[object] = []
    for number, changes in journal.after(before):
        told += [change for change in changes if change[0] == TOPIC]  # type: ignore[index]
        assert number < answered or told == [[TOPIC, "new", 2]]
    assert number == journal.number


def test_a_topic_that_was_made_again_while_a_reader_rests_is_told_behind_its_deletion() -> None:
    lives: dict[str, object] = {}
    topics: dict[str, object] = {f"t{number}": 1 for number in range(1000)}
    journal = made({GRAVE: lives, TOPIC: topics})
    batches = journal.after(0)
    next(batches)
    for name in ("t998", "t999"):
        lives[name], topics[name] = [1, 10], 2
        journal.changed(GRAVE, name)
        journal.changed(TOPIC, name)
    rest = [change for _, changes in batches for change in changes if change[1] in ("t998", "t999")]  # type: ignore[index]
    graves: list[object] = [[GRAVE, "t998", [1, 10]], [GRAVE, "t999", [1, 10]]]
    assert rest == [*graves, [TOPIC, "t998", 2], [TOPIC, "t999", 2]]


def test_topics_that_were_deleted_together_while_a_reader_rests_are_told_in_their_order() -> None:
    lives: dict[str, object] = {}
    topics: dict[str, object] = {f"t{number}": 1 for number in range(1000)}
    topics["retries of t500"] = 1
    journal = made({GRAVE: lives, TOPIC: topics})
    batches = journal.after(0)
    next(batches)
    together = ["retries of t500", "t500"]
    for number, name in enumerate(together):
        lives[name] = [number, 10]
        journal.changed(GRAVE, name)
        del topics[name]
        journal.changed(TOPIC, name)
    told = [change for _, changes in batches for change in changes]
    first = [told.index([TOPIC, name, None]) for name in together]  # type: ignore[arg-type]
    assert first == sorted(first), "else a slave that leads now has the retries of no topic"
    assert told.index([GRAVE, "t500", [1, 10]]) < first[1]
    assert told.count([GRAVE, "t500", [1, 10]]) == 1, "deletions are told once, not before each entry that changed"


def test_an_entry_that_is_kept_behind_never_goes_before_what_changed_while_a_reader_rests() -> None:
    offsets: dict[str, object] = {f"t@g{number}": 1 for number in range(1000)}
    offsets["ended"] = 1
    journal = made({OFFSET: offsets})
    journal.keep_behind(OFFSET, "ended")
    batches = journal.after(0)
    next(batches)
    offsets["t@g0"] = offsets["ended"] = 2
    for name in ("t@g0", "ended"):
        journal.changed(OFFSET, name)
    rest = [(number, change) for number, changes in batches for change in changes]
    assert rest and all(change[1] != "ended" for _, change in rest)  # type: ignore[index]
    (last,) = journal.after(rest[-1][0])
    assert last == (journal.number, [[OFFSET, "t@g0", 2], [OFFSET, "ended", 2]])


@pytest.mark.parametrize("at", [599, 300])
def test_a_deletion_that_is_forgotten_while_a_reader_rests_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(journals, "_GONE_MAX", 3)
    tables: dict[str, dict[str, object]] = {TOPIC: {f"t{n}": n for n in range(605)}, GROUP: {}}
    journal, follower = made(tables), Follower()
    follower.catch_up(journal)
    for number in range(600):
        if number == at:
            del tables[TOPIC]["t600"]
            journal.changed(TOPIC, "t600")
        tables[TOPIC][f"t{number}"] = -number
        journal.changed(TOPIC, f"t{number}")
    removed = ["t601", "t602", "t603"]

    def delete_others() -> None:
        while removed:
            del tables[TOPIC][removed[-1]]
            journal.changed(TOPIC, removed.pop())

    assert follower.catch_up(journal, delete_others) > 600 and "t600" not in follower.tables[TOPIC]
    follower.catch_up(journal)
    assert follower.tables == tables


def test_the_whole_journal_never_goes_behind_what_was_told() -> None:
    topics: dict[str, object] = {f"t{number}": 1 for number in range(1000)}
    journal = made({TOPIC: topics})
    journal._floor = 1000
    for name in list(topics)[:600]:
        journal.changed(TOPIC, name)
    numbers = [number for number, _ in journal.after(1000)]
    assert len(numbers) > 1 and numbers == sorted(set(numbers)) and numbers[0] > 1000


def test_a_slave_that_lacks_more_deletions_than_are_kept_hears_of_them_in_a_large_table_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "_GONE_MAX", 3)
    tables: dict[str, dict[str, object]] = {TOPIC: {f"t{n}": n for n in range(1000)}, GROUP: {}}
    journal, follower = made(tables), Follower()
    follower.catch_up(journal)
    for number in range(900, 910):
        del tables[TOPIC][f"t{number}"]
        journal.changed(TOPIC, f"t{number}")
    follower.catch_up(journal)
    assert follower.tables == tables


def test_names_that_exist_are_kept_up_to_date() -> None:
    topics: dict[str, object] = {"a": 1, "b": 1}
    journal = made({TOPIC: topics, GROUP: {"g": 1}})
    del topics["a"]
    topics["c"] = 1
    for name in ("a", "c", "c"):
        journal.changed(TOPIC, name)
    (_, (everything, *_)), *_ = list(journal.after(0))
    assert everything == [ALL, "", {TOPIC: ["b", "c"], GROUP: ["g"], journals.LOG_START: 0}]
    assert journal._chars == {TOPIC: 2, GROUP: 1}
