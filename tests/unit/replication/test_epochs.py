"""Tables of epochs: where two logs part, and what hostile bytes can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.replication import epochs
from gantry.replication.epochs import CommonPoint, EpochEntry, EpochTable, last_common, table_of
from gantry.replication.members import NUMBER_MAX


@st.composite
def tables(draw: st.DrawFn) -> EpochTable:
    numbers = sorted(draw(st.sets(st.integers(1, NUMBER_MAX), max_size=8)))
    starts = sorted(draw(st.sets(st.integers(0, 1 << 62), min_size=len(numbers), max_size=len(numbers))))
    return table_of(zip(numbers, starts, strict=True))


def test_a_new_epoch_begins_where_the_log_ends() -> None:
    assert table_of([(1, 0)]).begin(3, 500).entries == ((1, 0), (3, 500))


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next_one_at_its_place() -> None:
    assert table_of([(1, 0), (2, 500)]).begin(3, 500).entries == ((1, 0), (3, 500))
    assert table_of([(1, 0)]).begin(2, 0).entries == ((2, 0),)


def test_the_same_beginning_twice_is_no_news() -> None:
    assert table_of([(1, 0), (2, 500)]).begin(2, 500).entries == ((1, 0), (2, 500))


@pytest.mark.parametrize("entry", [(2, 600), (1, 600), (3, 499)])
def test_epochs_and_starts_never_go_back(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cannot"):
        table_of([(1, 0), (2, 500)]).begin(*entry)


@pytest.mark.parametrize(
    "entries",
    [[(0, 0)], [(1, -1)], [(NUMBER_MAX + 1, 0)], [(1, 1 << 63)], [(1, 0), (1, 5)], [(2, 0), (1, 5)], [(1, 5), (2, 5)]],
)
def test_pairs_that_cannot_be_a_table_are_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="epoch"):
        table_of(entries)


def test_a_record_belongs_to_the_last_epoch_that_began_before_it() -> None:
    table = table_of([(2, 100), (5, 300)])
    assert [table.epoch_at(offset) for offset in (99, 100, 299, 300, 9999)] == [0, 2, 2, 5, 5]


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "common"),
    [
        ([(1, 0)], 150, [(1, 0)], 100, (1, 100)),
        ([(1, 0)], 150, [(1, 0), (2, 100)], 300, (1, 100)),  # the tail of a former master
        ([(1, 0), (2, 100)], 120, [(1, 0), (3, 100)], 200, (1, 100)),  # two successors that never met
        ([(1, 0), (2, 100)], 100, [(1, 0), (3, 100)], 200, (1, 100)),  # one of them wrote nothing
        ([(1, 0), (2, 100)], 100, [(1, 0), (2, 100)], 300, (2, 100)),
        ([(1, 0), (2, 100)], 50, [(1, 0), (2, 100)], 300, (1, 50)),  # the tail was lost, its entry was not
        ([(1, 0), (2, 100)], 180, [(1, 0), (2, 100), (4, 200)], 300, (2, 180)),
        ([(1, 0), (2, 100), (3, 200)], 250, [(1, 0), (2, 100), (4, 150)], 300, (2, 150)),
        ([(1, 0), (3, 2000)], 4000, [(7, 5000)], 9000, None),  # the other one no longer keeps what they share
        ([(1, 0)], 100, [(2, 0)], 300, (0, 0)),
        ([], 0, [(1, 0)], 300, (0, 0)),
        ([], 100, [(1, 0)], 300, None),
    ],
)
def test_two_logs_are_equal_up_to_the_last_epoch_that_both_have(
    mine: list[tuple[int, int]],
    my_end: int,
    theirs: list[tuple[int, int]],
    their_end: int,
    common: tuple[int, int] | None,
) -> None:
    assert last_common(table_of(mine), my_end, table_of(theirs), their_end) == common
    assert last_common(table_of(theirs), their_end, table_of(mine), my_end) == common


def test_a_cut_log_keeps_no_epoch_that_it_does_not_share() -> None:
    table = table_of([(1, 0), (2, 100), (3, 200)])
    assert table.cut(CommonPoint(2, 150)).entries == ((1, 0), (2, 100))
    assert table.cut(CommonPoint(1, 100)).entries == ((1, 0),)
    assert table.cut(CommonPoint(0, 0)).entries == ()


def test_an_epoch_is_forgotten_when_the_last_byte_of_it_is_gone() -> None:
    table = table_of([(1, 0), (2, 100), (3, 200)])
    assert [len(table.forget_before(begin).entries) for begin in (0, 99, 100, 199, 200, 9999)] == [3, 3, 2, 2, 1, 1]


class History:
    """Logs as lists of (epoch, number), written by whatever masters the test appoints; what `last_common` must find."""

    def __init__(self, count: int) -> None:
        self.logs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.tables = [EpochTable() for _ in range(count)]
        self.epoch = 0
        self.number = 0

    def follow(self, who: int, whom: int) -> None:
        """Cut to the common point, then take over the whole rest."""
        mine, theirs = self.logs[who], self.logs[whom]
        point = last_common(self.tables[who], len(mine), self.tables[whom], len(theirs))
        assert point is not None, "all of these logs begin at 0"
        pairs = enumerate(zip(mine, theirs, strict=False))
        equal = next((at for at, (one, other) in pairs if one != other), min(len(mine), len(theirs)))
        assert point.end <= equal, "a common point behind the first difference"
        assert point.end == equal, "epochs of one master each leave no doubt"
        self.logs[who] = list(theirs)
        self.tables[who] = self.tables[whom]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=30))
def test_logs_of_any_history_part_exactly_at_the_common_point(steps: list[tuple[int, int, int]]) -> None:
    history = History(3)
    for master, slave, count in steps:
        history.epoch += 1
        history.tables[master] = history.tables[master].begin(history.epoch, len(history.logs[master]))
        for _ in range(count):
            history.number += 1
            history.logs[master].append((history.epoch, history.number))
        if slave != master:
            history.follow(slave, master)


@given(tables())
def test_a_table_is_read_as_it_was_written(table: EpochTable) -> None:
    assert epochs.decode(table.encode()) == table


@given(tables(), st.data())
def test_a_damaged_table_is_refused(table: EpochTable, data: st.DataObject) -> None:
    good = table.encode()
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    for hostile in (bytes(bad), good[:at], good + good[: at + 1]):
        with pytest.raises(ValueError, match=r"."):
            epochs.decode(hostile)


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        epochs.decode(data)


def test_more_epochs_than_are_kept_are_refused_before_they_are_read() -> None:
    too_many = tuple(EpochEntry(number + 1, number) for number in range(epochs.ENTRIES_MAX + 1))
    with pytest.raises(ValueError, match="at most"):
        EpochTable(too_many)
