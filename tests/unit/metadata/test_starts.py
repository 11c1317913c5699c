"""Where a group begins in a queue in which it has no offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gantry.errors import RefusedError
from gantry.metadata import starts
from gantry.metadata.offsets import Offsets
from gantry.metadata.starts import GroupStarts
from testkit.memory_state import MemoryState
from testkit.pullplay import SMALL, PullPlay
from testkit.requests import within
from testkit.simclock import SimClock

OLD = 100  # bytes: every queue with a message behind it is old


class Beginning(PullPlay):
    """A pull play with a group "g"; `elsewhere_ms`: since when it reads T on another broker, None: it does not."""

    def __init__(self) -> None:
        super().__init__(store=replace(SMALL))
        self.elsewhere_ms: int | None = None
        self.asked = 0
        self.starts = GroupStarts(self.offsets, self.topics, self.store, OLD, self._elsewhere)

    async def _elsewhere(self, group: str, topic: str) -> int | None:
        self.asked += 1
        return self.elsewhere_ms

    def given(self, queue_id: int, group: str = "g") -> int | None:
        return self.starts.given(group, "T", queue_id)

    def learn(self) -> dict[int, int]:
        """What the group has after the other brokers were asked."""

        async def learned() -> None:
            await self.starts.learn("g", "T")

        within(learned(), self.cold.step)
        return dict(self.offsets.of("g", "T"))


def test_a_group_begins_at_the_first_message_of_a_queue_that_appeared_later() -> None:
    play = Beginning()
    play.send("one", queue_id=0)
    play.offsets.commit("g", "T", 0, 1)
    play.send("x" * 1000, "two", queue_id=1)
    assert play.given(1) == 0
    assert play.given(1, "new") is None, "a group that is new begins as its clients are configured to"


def test_a_group_that_is_beginning_is_not_sent_back_in_the_old_queues_of_its_topic() -> None:
    play = Beginning()
    play.send("one", "x" * 1000, queue_id=0)
    play.send("one", "x" * 1000, queue_id=1)
    play.offsets.commit("g", "T", 0, 2)  # its first member has begun at the end of this one
    assert play.given(1) is None


def test_when_only_messages_are_left_that_came_later_it_begins_with_the_first_of_them() -> None:
    play = Beginning()
    play.send("old", queue_id=1)
    play.offsets.commit("g", "T", 0, 0)
    play.send("new", queue_id=1)
    assert play.given(1) is None
    for _ in range(40):  # more than a segment
        play.send("x" * 4000, queue_id=2)
    play.send("newest", queue_id=1)
    play.clock.advance(1000 * 3_600_000)
    play.store.retention.drop_expired()
    for _ in range(100):
        play.clock.advance(1000)
        for _ in play.store.tick(play.clock.now_ms()):
            pass
    assert play.store.queue_range("T", 1) == (2, 3), "retention has removed the old one"
    assert play.given(1) == 2


def test_an_empty_queue_has_its_end_as_its_begin() -> None:
    play = Beginning()
    assert play.given(3) == 0
    play.store.begin_queue("T", 3, 9)  # all its messages have expired
    assert play.given(3) == play.given(3, "new") == 9


def test_a_group_of_an_older_version_or_of_rocketmq_reads_rather_again_than_skips() -> None:
    play = Beginning()
    play.send("one", "x" * 1000, queue_id=1)
    play.offsets.follow("T@g", {"0": 0})  # no begin comes with it
    assert play.given(1) == 0


def test_a_group_that_reads_the_topic_elsewhere_begins_at_the_first_message_of_this_broker() -> None:
    play = Beginning()
    play.elsewhere_ms = play.clock.now_ms()
    play.clock.advance(1000)
    play.send("one", "x" * 1000, queue_id=0)
    play.send("one", "x" * 1000, queue_id=1)
    assert play.starts.is_unknown("g", "T")
    assert play.learn() == {0: 0, 1: 0}
    assert not play.starts.is_unknown("g", "T")
    play.send("later", queue_id=2)
    assert play.given(2) == 0


def test_queues_that_were_here_before_it_began_elsewhere_are_begun_as_its_clients_say() -> None:
    play = Beginning()
    play.send("one", "x" * 1000, queue_id=0)
    play.clock.advance(3_600_000)
    play.elsewhere_ms = play.clock.now_ms()
    play.send("one", "x" * 1000, queue_id=1)
    assert play.learn() == {1: 0}
    assert play.given(0) is None


def test_a_group_that_is_nowhere_is_new() -> None:
    play = Beginning()
    play.send("one", "x" * 1000, queue_id=0)
    assert play.learn() == {}
    assert (play.asked, play.given(0)) == (1, None)


def test_a_slave_hears_where_a_group_goes_on_whose_mark_is_lifted() -> None:
    offsets = Offsets(MemoryState(), SimClock())
    offsets.begin_again("T", 1, ["g"], queues=1)
    offsets.touched, offsets.marks.touched = set(), set()
    assert (offsets.take_reset("g", "T", 0, 9), offsets.take_reset("g", "T", 0, 0)) == (0, None)
    assert offsets.touched == offsets.marks.touched == {"T@g"}, "without its offset it would begin at the end"


def test_the_queues_of_a_topic_are_read_once_although_a_member_asks_for_each_of_them() -> None:
    play = Beginning()
    play.elsewhere_ms = play.clock.now_ms() + 3_600_000
    for queue_id in range(3):
        play.send("old", queue_id=queue_id)
    read: list[int] = []
    bring_in = play.store.bring_in

    def counted(places: Any, done: Any, ahead_bytes: int = 0) -> None:
        read.append(len(places))
        bring_in(places, done, ahead_bytes)

    play.store.bring_in = counted  # type: ignore[method-assign]
    for _ in range(4):
        assert play.learn() == {}, "it began after their first messages"
    assert (play.asked, read) == (4, [1, 1, 1])
    play.send("new", queue_id=3)
    assert play.learn() == {} and len(read) == 4, "a queue that appears meanwhile is looked at"


def test_a_disk_that_hangs_refuses_the_answer_instead_of_beginning_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Beginning()
    play.elsewhere_ms = play.clock.now_ms()
    play.send("one", queue_id=0)
    with monkeypatch.context() as hanging:
        hanging.setattr(starts, "_DISK_S", 0.01)
        hanging.setattr(play.store, "bring_in", lambda places, done: None)
        with pytest.raises(RefusedError, match="disk"):
            play.learn()
    assert play.starts.is_unknown("g", "T"), "nothing is decided"
    assert play.learn() == {0: 0}
