"""How far groups are behind, in the metrics."""

from __future__ import annotations

from gantry.broker.meters.census import Census, GroupBacklog
from testkit.pullplay import PullPlay


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
