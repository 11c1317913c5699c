"""One rule for offsets from outside, by every door: requests 15 and 11, and what slaves report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.consume.pull import COMMIT_OFFSET, SUBSCRIPTION_INLINE
from gantry.metadata.commits import GroupCommits
from gantry.metadata.offsets import NOT_COMMITTED
from testkit.pullplay import PullPlay

Door = Callable[[PullPlay, int], object]


def by_commit(play: PullPlay, offset: int) -> object:
    return play.commits.take("g", "T", 0, offset)


def by_pull(play: PullPlay, offset: int) -> object:
    return play.pull(0, sys_flag=SUBSCRIPTION_INLINE | COMMIT_OFFSET, commit_offset=offset)


def from_a_slave(play: PullPlay, offset: int) -> object:
    return play.commits.merge("T@g", {"0": offset})


DOORS = pytest.mark.parametrize("door", [by_commit, by_pull, from_a_slave])


@DOORS
@pytest.mark.parametrize("offset", [-1, -(2**63), 11, 10**9, 2**63 - 1])
def test_what_is_no_offset_of_the_queue_loses_no_progress(door: Door, offset: int) -> None:
    play = PullPlay()
    play.send(*"0123456789")
    door(play, 7)
    door(play, offset)
    assert play.offsets.query("g", "T", 0) == 7
    assert play.commits.beyond == (offset > 10)


@DOORS
def test_the_end_of_the_queue_is_an_offset_of_it(door: Door) -> None:
    play = PullPlay()
    play.send(*"0123456789")
    door(play, 10)
    assert play.offsets.query("g", "T", 0) == 10


@DOORS
def test_an_offset_of_a_deleted_topic_of_the_same_name_does_not_count(door: Door) -> None:
    play = PullPlay()
    play.send(*"0123456789")
    play.store.delete_queues("T")
    play.offsets.begin_again("T", play.store.generations.of("T"))
    for queue_id in play.offsets.marks.queues("T@g"):
        play.offsets.has_moved("g", "T", queue_id)
    play.send("a", "b")
    door(play, 10)
    assert play.offsets.query("g", "T", 0) == NOT_COMMITTED
    for one in "cdefghijkl":
        play.send(one)
    assert play.offsets.query("g", "T", 0) == NOT_COMMITTED


def test_a_slave_does_not_know_the_end_and_takes_what_it_gets() -> None:
    play = PullPlay()
    commits = GroupCommits(play.offsets, play.store, knows_end=False)
    assert commits.take("g", "T", 0, 5) == ""
    assert commits.take("g", "T", 0, -1)
    assert play.offsets.query("g", "T", 0) == 5


@pytest.mark.parametrize(("reported", "is_corrected"), [(11, True), (6, True), (7, False), (10, False)])
def test_a_slave_that_reports_another_offset_than_the_master_holds_is_sent_that_one(
    reported: int, is_corrected: bool
) -> None:
    play = PullPlay()
    play.send(*"0123456789")
    play.commits.take("g", "T", 0, 7)
    play.offsets.touched = set()
    play.commits.merge("T@g", {"0": reported})
    changed = {"T@g"} if reported == 10 else set()
    assert play.offsets.touched == ({"T@g"} if is_corrected else changed)
    assert play.offsets.query("g", "T", 0) == (10 if reported == 10 else 7)


def test_an_offset_in_a_queue_that_the_master_does_not_have_is_taken_back() -> None:
    play = PullPlay()
    play.offsets.touched = set()
    play.commits.merge("gone@g", {"0": 5})
    assert play.offsets.touched == {"gone@g"} and play.offsets.value("gone@g") is None, "the slave deletes it"


def test_the_first_offset_in_a_queue_is_told() -> None:
    play = PullPlay()
    play.send(*"0123456789")
    firsts: list[int] = []
    play.commits.on_first = lambda: firsts.append(play.offsets.firsts.count)
    for offset in (3, 4, 3):
        play.commits.take("g", "T", 0, offset)
    play.commits.take("g", "T", 1, 0)
    assert firsts == [1, 2]
