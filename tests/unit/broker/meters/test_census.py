"""How far groups are behind, in the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gantry.broker.meters.census import Census, GroupBacklog
from testkit.pullplay import SMALL, PullPlay


def backlog(play: PullPlay) -> GroupBacklog:
    census = Census(play.store, play.topics, play.groups, play.offsets, play.clients, play.clock)
    for _ in census.take():
        pass
    (found,) = census.standings
    return found


def test_a_queue_that_a_group_has_not_begun_counts_whole() -> None:
    play = PullPlay()
    play.groups.ensure("g")
    play.send("one", "two", queue_id=0)
    play.offsets.commit("g", "T", 0, 2)
    assert backlog(play).behind == 0
    play.send("three", "four", "five", queue_id=3)
    found = backlog(play)
    assert (found.behind, found.finished) == (3, 2)
    play.offsets.commit("g", "T", 3, 1)
    found = backlog(play)
    assert (found.behind, found.finished) == (2, 3)


class SlowDisk:
    """Every record is on a disk that answers when it is told to."""

    def __init__(self, play: PullPlay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Callable[[], None]] = []
        self.brought: set[object] = set()
        monkeypatch.setattr(play.store.reader, "is_cold", lambda places: places[0] not in self.brought)
        monkeypatch.setattr(play.store, "bring_in", self.bring_in)

    def bring_in(self, places: list[object], done: Callable[[], None]) -> None:
        def read() -> None:
            self.brought |= set(places)
            done()

        self.asked.append(read)

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for read in asked:
            read()


def test_old_messages_are_read_by_the_cold_reader_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    play = PullPlay(store=replace(SMALL, warm_bytes=0))
    play.groups.ensure("g")
    play.send("one", "two", queue_id=0)
    play.offsets.commit("g", "T", 0, 0)
    play.clock.advance(5000)
    disk = SlowDisk(play, monkeypatch)
    census = Census(play.store, play.topics, play.groups, play.offsets, play.clients, play.clock)

    def taken(is_waiting: bool) -> float:
        for begin in census.take():
            if begin is not None:
                begin(lambda: None)
                if is_waiting:
                    disk.answer()
        return census.standings[0].waited_s

    assert taken(is_waiting=False) == 0, "nothing is known, and the disk did not answer in time"
    assert taken(is_waiting=True) == 5
    play.clock.advance(1000)
    assert taken(is_waiting=True) == 6
    assert not disk.asked, "it is known by now"
    play.offsets.commit("g", "T", 0, 1)
    assert taken(is_waiting=False) == 6, "as of the message before, until the disk answers"
    play.store.delete_queues("T")
    play.send("other", queue_id=0)
    play.offsets.commit("g", "T", 0, 0)
    assert taken(is_waiting=True) == 0, "a topic made again has other messages"
