from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.consume.handlers import PullLimits
from gantry.consume.pull import COMMIT_OFFSET, SUBSCRIPTION_INLINE, SUSPEND
from gantry.metadata.offsets import NOT_COMMITTED
from gantry.model.subscription import Subscription
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.pullplay import SMALL, PullPlay, bodies_of, codes_of, offsets_of

WAITING = {"sys_flag": SUBSCRIPTION_INLINE | SUSPEND}


class Ticking:
    """A clock that goes on by a step whenever somebody looks."""

    def __init__(self, step_s: float) -> None:
        self._now = 0.0
        self._step_s = step_s

    def monotonic(self) -> float:
        self._now += self._step_s
        return self._now


def test_messages_come_as_they_lie_in_the_log() -> None:
    play = PullPlay()
    play.send("one", "two", "three")
    (reply,) = play.pull(0)
    assert (reply.code, reply.remark, reply.opaque) == (0, "FOUND", 100)
    assert offsets_of(reply) == (3, 0, 3)
    assert bodies_of(reply.body) == ["one", "two", "three"]


def test_messages_are_not_copied_on_their_way_out() -> None:
    play = PullPlay()
    play.send("one", "two")
    play.pull(0)
    head, body = play.connection.chunks
    assert isinstance(head, bytes)
    assert isinstance(body, memoryview)


def test_every_pull_of_a_run_has_its_own_answer() -> None:
    play = PullPlay()
    play.send("one", "two")
    replies = play.pull(0, 1, 2, 3)
    assert codes_of(replies) == [0, 0, 19, 21]
    assert [reply.opaque for reply in replies] == [100, 101, 102, 103]
    assert [offsets_of(reply)[0] for reply in replies] == [2, 2, 2, 2]


def test_a_client_gets_as_many_as_it_asks_for_and_always_one() -> None:
    play = PullPlay()
    play.send("one", "two", "three")
    assert offsets_of(play.pull(0, count_max=2)[0])[0] == 2
    assert offsets_of(play.pull(0, count_max=0)[0])[0] == 1
    assert offsets_of(play.pull(0, count_max=-5)[0])[0] == 1
    assert offsets_of(play.pull(0, bytes_max=1)[0])[0] == 1


def test_the_broker_bounds_what_one_pull_takes() -> None:
    play = PullPlay(PullLimits(count_max=2, bytes_default=10_000, bytes_max=20_000))
    play.send(*["x" * 6000] * 6)
    assert offsets_of(play.pull(0, count_max=1000)[0])[0] == 1
    assert offsets_of(play.pull(0, count_max=1000, bytes_max=10**9)[0])[0] == 2


def test_tags_that_do_not_match_move_the_consumer_on() -> None:
    play = PullPlay()
    play.send("one", "two", tags="B")
    (reply,) = play.pull(0, subscription="A", **WAITING)
    assert (reply.code, reply.remark) == (20, "NO_MATCHED_MESSAGE")
    assert offsets_of(reply) == (2, 0, 2)
    play.send("three", tags="A")
    (reply,) = play.pull(0, subscription="A")
    assert bodies_of(reply.body) == ["three"]


def test_an_empty_queue_is_not_found_at_its_beginning_and_moved_elsewhere() -> None:
    play = PullPlay()
    assert codes_of(play.pull(0, 5)) == [19, 21]
    assert offsets_of(play.pull(5)[0]) == (0, 0, 0)


def test_the_offset_on_the_side_is_committed_when_wanted() -> None:
    play = PullPlay()
    play.send(*"abcdef")
    play.pull(0, sys_flag=SUBSCRIPTION_INLINE, commit_offset=5)
    assert play.offsets.query("g", "T", 0) == NOT_COMMITTED
    play.pull(0, sys_flag=SUBSCRIPTION_INLINE | COMMIT_OFFSET, commit_offset=5)
    assert play.offsets.query("g", "T", 0) == 5
    play.pull(0, sys_flag=SUBSCRIPTION_INLINE | COMMIT_OFFSET, commit_offset=-1)
    assert play.offsets.query("g", "T", 0) == 5


def test_a_refused_pull_commits_nothing() -> None:
    play = PullPlay()
    flags = SUBSCRIPTION_INLINE | COMMIT_OFFSET
    (reply,) = play.pull(0, queue_id=4, sys_flag=flags, commit_offset=5)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert play.offsets.query("g", "T", 4) == NOT_COMMITTED
    assert play.pulls.counts.refused == 1


def test_a_pull_at_the_end_waits_for_the_next_message() -> None:
    play = PullPlay()
    play.send("one")
    assert play.pull(1, **WAITING) == []
    play.send("two")
    (reply,) = play.replies()
    assert bodies_of(reply.body) == ["two"]
    assert offsets_of(reply) == (2, 0, 2)


def test_a_pull_for_a_queue_that_does_not_exist_yet_waits_for_it() -> None:
    play = PullPlay()
    assert play.pull(0, queue_id=3, **WAITING) == []
    play.send("first", queue_id=3)
    assert bodies_of(play.replies()[0].body) == ["first"]


def test_a_run_of_messages_wakes_a_pull_once_with_all_of_them() -> None:
    play = PullPlay()
    play.pull(0, **WAITING)
    play.send("one", "two", "three")
    (reply,) = play.replies()
    assert bodies_of(reply.body) == ["one", "two", "three"]


def test_a_message_that_is_not_wanted_does_not_wake_and_is_passed_when_time_is_over() -> None:
    play = PullPlay()
    play.pull(0, subscription="A", suspend_ms=5_000, **WAITING)
    play.send("one", tags="B")
    assert play.replies() == []
    play.pass_time(5_300)
    (reply,) = play.replies()
    assert (reply.code, offsets_of(reply)[0]) == (19, 1)


def test_messages_passed_for_another_subscription_are_looked_at_again() -> None:
    play = PullPlay()
    play.subscribe(Subscription("T", "A", 1))
    play.pull(0, sys_flag=SUSPEND)
    play.send("one", tags="B")
    play.subscribe(Subscription("T", "B", 2))
    play.pass_time(16_000)
    (reply,) = play.replies()
    assert (reply.code, bodies_of(reply.body)) == (0, ["one"])


def test_an_sql_filter_gets_what_it_wants_and_goes_on_behind_what_it_saw() -> None:
    play = PullPlay()
    for number in range(10):
        play.send(f"m{number}", pairs={"n": str(number)})
    (reply,) = play.pull(2, subscription="n > 4 AND n <> 7", expression_type="SQL92", count_max=3)
    assert (reply.code, bodies_of(reply.body)) == (0, ["m5", "m6", "m8"])
    assert offsets_of(reply) == (9, 0, 10)
    (reply,) = play.pull(0, subscription="n > 99", expression_type="SQL92")
    assert (reply.code, reply.remark, offsets_of(reply)[0]) == (20, "NO_MATCHED_MESSAGE", 10)
    assert (play.pulls.counts.sifted, play.pulls.counts.sifted_out) == (17, 14)


def test_a_filter_that_wants_nothing_gets_on_in_bounded_steps() -> None:
    play = PullPlay(PullLimits(sifted_max=100))
    play.send(*["x"] * 350)
    offsets, offset = [], 0
    while offset < 350:
        (reply,) = play.pull(offset, subscription="n = 'never'", expression_type="SQL92")
        offset = offsets_of(reply)[0]
        offsets.append(offset)
    assert offsets == [100, 200, 300, 350]


def test_pulls_that_come_together_share_the_time_for_sifting_and_each_gets_on() -> None:
    play = PullPlay()
    play.send(*["x"] * 500)
    play.pulls._clock = Ticking(0.002)  # type: ignore[assignment]  # each look at it takes 2 ms
    replies = play.pull(0, 10, subscription="n IS NOT NULL", expression_type="SQL92")
    steps = [offsets_of(reply)[0] for reply in replies]
    assert 0 < steps[0] < 500 and 10 < steps[1] < 500


def test_an_sql_filter_waits_for_what_it_wants() -> None:
    play = PullPlay()
    play.pull(0, subscription="n > 5", expression_type="SQL92", **WAITING)
    play.send(*["no"] * 300, pairs={"n": "1"})
    assert play.replies() == []
    play.send("yes", pairs={"n": "6"})
    (reply,) = play.replies()
    assert (reply.code, bodies_of(reply.body), offsets_of(reply)[0]) == (0, ["yes"], 301)
    assert play.pulls.counts.sifted == 1


def test_what_is_cold_is_brought_in_before_its_properties_are_looked_at() -> None:
    play = PullPlay(store=replace(SMALL, warm_bytes=1))
    play.send("one", "two", pairs={"n": "1"})
    assert play.pull(0, subscription="n = 1", expression_type="SQL92") == []
    assert play.pulls.counts.sifted == 0
    play.cold.step()
    (reply,) = play.replies()
    assert bodies_of(reply.body) == ["one", "two"]


def test_a_client_that_does_not_want_to_wait_does_not() -> None:
    play = PullPlay()
    assert codes_of(play.pull(0)) == [19]
    assert codes_of(play.pull(0, suspend_ms=0, **WAITING)) == [19]
    assert len(play.pulls.held) == 0


def test_a_held_pull_commits_once() -> None:
    play = PullPlay()
    play.pull(0, sys_flag=SUBSCRIPTION_INLINE | SUSPEND | COMMIT_OFFSET, commit_offset=3)
    play.offsets.commit("g", "T", 0, 9)
    play.send("one")
    assert codes_of(play.replies()) == [0]
    assert play.offsets.query("g", "T", 0) == 9


def test_what_changed_while_a_pull_waited_counts() -> None:
    play = PullPlay()
    play.pull(0, **WAITING)
    play.topics.delete("T")
    play.pulls.held.release_topic("T")
    assert codes_of(play.replies()) == [17]


def test_too_many_held_pulls_are_refused_with_the_number() -> None:
    play = PullPlay(PullLimits(held_max=1))
    (reply,) = play.pull(0, 0, **WAITING)
    assert (reply.code, reply.opaque) == (ResponseCode.SYSTEM_BUSY, 101)
    assert reply.remark == "1 pulls are held, the limit is 1"


def test_a_closed_connection_is_not_answered() -> None:
    play = PullPlay()
    play.pull(0, **WAITING)
    play.pulls.held.connection_closed(play.connection)
    play.send("one")
    assert play.replies() == []
    assert play.pulls.counts.woken == 0


def test_stopping_answers_everybody_who_waits() -> None:
    play = PullPlay()
    play.pull(0, 0, **WAITING)
    play.pulls.held.release_all()
    assert codes_of(play.replies()) == [19, 19]


def test_a_peer_that_does_not_read_is_sent_back_with_empty_hands() -> None:
    play = PullPlay()
    play.send("one")
    play.connection.is_writable = False
    (reply,) = play.pull(0)
    assert (reply.code, reply.body) == (20, b"")
    assert offsets_of(reply) == (0, 0, 1)


def test_who_asks_for_very_much_at_once_gets_the_rest_when_asking_again() -> None:
    play = PullPlay(PullLimits(run_bytes_max=20_000))
    play.send(*["x" * 10_000] * 4)
    replies = play.pull(0, 1, 2, 3, count_max=1)
    assert codes_of(replies) == [0, 0, 20, 20]
    assert [offsets_of(reply)[0] for reply in replies] == [1, 2, 2, 3]
    assert codes_of(play.pull(2, 3, count_max=1)) == [0, 0]


def test_a_one_way_pull_commits_and_is_neither_answered_nor_held() -> None:
    play = PullPlay()
    play.send("one")
    flags = SUBSCRIPTION_INLINE | SUSPEND | COMMIT_OFFSET
    assert play.pull(0, 1, 99, rpc_flag=2, sys_flag=flags, commit_offset=1) == []
    assert play.pull(0, rpc_flag=2, queue_id=77) == []
    assert play.offsets.query("g", "T", 0) == 1
    assert len(play.pulls.held) == 0


def test_a_lite_pull_is_a_pull() -> None:
    play = PullPlay()
    play.send("one")
    (reply,) = play.pull(0, code=int(RequestCode.LITE_PULL_MESSAGE))
    assert bodies_of(reply.body) == ["one"]


def test_a_forbidden_pull_says_which_kind_it_is() -> None:
    play = PullPlay()
    play.checks.is_readable = False
    (reply,) = play.pull(0)
    assert (reply.code, reply.ext["forbiddenType"]) == (16, "1")


def test_a_consumer_that_heartbeats_needs_no_inline_subscription() -> None:
    play = PullPlay()
    play.subscribe(Subscription("T", "A"))
    play.send("one", tags="A")
    play.send("two", tags="B")
    (reply,) = play.pull(0, sys_flag=0, subscription=None)
    assert bodies_of(reply.body) == ["one"]


def test_what_is_cold_is_read_elsewhere_first() -> None:
    play = PullPlay(store=replace(SMALL, warm_bytes=1000))
    play.send("one", "x" * 2000)
    assert play.pull(0, count_max=1) == []
    assert play.pulls.counts.cold == 1
    play.cold.step()
    (reply,) = play.replies()
    assert bodies_of(reply.body) == ["one"]
    assert codes_of(play.pull(2)) == [19]


def test_what_is_far_behind_and_in_memory_is_answered_at_once() -> None:
    play = PullPlay(store=replace(SMALL, warm_bytes=1000))
    play.store._log.in_memory = lambda places: True  # type: ignore[method-assign]  # a simulated disk cannot tell
    play.send("one", "x" * 2000)
    (reply,) = play.pull(0, count_max=1)
    assert bodies_of(reply.body) == ["one"] and play.pulls.counts.cold == 0


def test_who_leaves_while_the_disk_is_read_is_not_answered() -> None:
    play = PullPlay(store=replace(SMALL, warm_bytes=1000))
    play.send("one", "x" * 2000)
    play.pull(0)
    play.connection.closed = True
    play.cold.step()
    assert play.pulls.counts.found == 0


def test_a_woken_pull_whose_connection_is_closing_is_dropped() -> None:
    play = PullPlay()
    play.pull(0, **WAITING)
    play.connection.closed = True
    play.send("one")
    assert play.pulls.counts.found == 0


def test_what_went_out_is_counted_by_topic_and_group() -> None:
    play = PullPlay()
    play.send("one", "two")
    replies = [*play.pull(0), *play.pull(0, group="h", count_max=1), *play.pull(2)]
    counts = play.pulls.counts
    assert (counts.found, counts.missed, counts.messages) == (2, 1, 3)
    assert counts.bytes == sum(len(reply.body) for reply in replies)
    assert {key: messages for key, (messages, _) in counts.by_group.items()} == {("T", "g"): 2, ("T", "h"): 1}


@pytest.mark.parametrize("count", [1, 5])
def test_everybody_who_waits_gets_the_message(count: int) -> None:
    play = PullPlay()
    connections = [FakeConnection(str(number)) for number in range(count)]
    for connection in connections:
        play.connection = connection
        play.pull(0, **WAITING)
    play.send("one")
    assert [codes_of(connection.take()) for connection in connections] == [[0]] * count
