"""Held pulls whose time is over."""

from __future__ import annotations

from gantry.consume.handlers import PullLimits
from gantry.consume.pull import SUBSCRIPTION_INLINE, SUSPEND
from gantry.wire.codes import ResponseCode
from testkit.pullplay import PullPlay, codes_of, offsets_of

WAITING = {"sys_flag": SUBSCRIPTION_INLINE | SUSPEND}


def test_when_time_is_over_nothing_found_is_the_answer() -> None:
    play = PullPlay()
    play.send("one")
    play.pull(1, suspend_ms=5_000, **WAITING)
    play.pass_time(4_900)
    assert play.replies() == []
    play.pass_time(400)
    (reply,) = play.replies()
    assert (reply.code, offsets_of(reply)) == (19, (1, 0, 1))


def test_when_time_is_over_a_queue_without_messages_is_not_found_either() -> None:
    play = PullPlay()
    play.pull(0, suspend_ms=5_000, **WAITING)
    play.pass_time(5_300)
    (reply,) = play.replies()
    assert (reply.code, offsets_of(reply)) == (19, (0, 0, 0))
    assert play.pulls.counts.woken == 1


def test_when_time_is_over_no_matter_who_was_sent_elsewhere_meanwhile_is_told() -> None:
    play = PullPlay()
    play.send("one", "two")
    play.pull(2, suspend_ms=5_000, **WAITING)
    play.offsets.reset("g", "T", 0, 1, marks=True)
    play.pass_time(5_300)
    (reply,) = play.replies()
    assert (reply.code, reply.remark, offsets_of(reply)[0]) == (21, "OFFSET_RESET", 1)


def test_when_time_is_over_a_master_without_serving_lease_says_nothing_about_the_queue() -> None:
    play = PullPlay()
    play.pull(0, suspend_ms=5_000, **WAITING)
    play.may_serve = False
    play.pass_time(5_300)
    assert codes_of(play.replies()) == [ResponseCode.SYSTEM_BUSY]


def test_when_time_is_over_a_peer_that_does_not_read_is_sent_back() -> None:
    play = PullPlay()
    play.pull(0, suspend_ms=5_000, **WAITING)
    play.connection.is_writable = False
    play.pass_time(5_300)
    assert codes_of(play.replies()) == [20]


def test_nobody_waits_longer_than_the_broker_allows() -> None:
    play = PullPlay(PullLimits(suspend_ms_max=1_000))
    play.pull(0, suspend_ms=10**12, **WAITING)
    play.pass_time(1_300)
    assert codes_of(play.replies()) == [19]
