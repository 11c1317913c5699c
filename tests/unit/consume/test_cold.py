"""Pulls that wait for the disk: how much is read for one connection, in which order, and for whom no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gantry.consume import cold
from gantry.consume.cold import ColdPulls, Places
from gantry.consume.handlers import PullLimits
from gantry.leaves import frames
from gantry.wire.codes import ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.pullplay import SMALL, PullPlay, bodies_of, codes_of, offsets_of

BODY = b"x" * 10_000
READ_MAX = 40_000


class Reads:
    """A cold reader that reads when it is told, and pulls that each want 10 bytes."""

    def __init__(self, bytes_max: int = 10, waiting_max: int = 5000) -> None:
        self.under_way: list[Callable[[], None]] = []
        self.begun: list[int] = []
        self.is_at_once = False
        self.cold = ColdPulls(self.bring_in, self.again, bytes_max, waiting_max)

    def bring_in(self, places: Places, done: Callable[[], None]) -> None:
        self.begun.append(places[0][0])
        if self.is_at_once:
            done()
        else:
            self.under_way.append(done)

    def again(self, connection: Any, pull: frames.Pull) -> None:
        assert self.ask(connection, pull)

    def ask(self, connection: Any, pull: frames.Pull) -> bool:
        if self.cold.may_read(connection):
            self.cold.read(connection, [(pull.queue_offset, 10)], lambda: None)
            return True
        return self.cold.wait(connection, pull)

    def finish(self) -> None:
        self.under_way.pop(0)()


def play_of(messages: int = 16) -> PullPlay:
    play = PullPlay(PullLimits(cold_bytes_max=READ_MAX), store=replace(SMALL, warm_bytes=1, segment_bytes=1 << 20))
    play.send(*[BODY] * messages)
    return play


def pull(number: int) -> frames.Pull:
    return frames.Pull(queue_offset=number)


def test_what_is_read_for_one_connection_is_bounded_and_every_pull_is_answered() -> None:
    play = play_of()
    play.pull(*range(16), count_max=2, bytes_max=1 << 20)
    assert READ_MAX <= play.pulls.cold.bytes_of(play.connection) < READ_MAX + 25_000
    found = []
    while play.cold.step():
        assert play.pulls.cold.bytes_of(play.connection) < READ_MAX + 25_000
        found += play.replies()
    assert codes_of(found) == [ResponseCode.SUCCESS] * 16
    assert [len(bodies_of(reply.body)) for reply in found] == [2] * 15 + [1]
    assert (len(play.pulls.cold), play.pulls.cold.waiting) == (0, 0)


def test_a_peer_that_stops_reading_gets_its_cold_pulls_back() -> None:
    play = play_of()
    play.pull(*range(16), count_max=1)
    play.connection.is_writable = False
    while play.cold.step():
        pass
    found = play.replies()
    assert codes_of(found) == [ResponseCode.PULL_RETRY_IMMEDIATELY] * 16
    assert sorted(offsets_of(reply)[0] for reply in found) == list(range(16))
    assert (len(play.pulls.cold), play.pulls.cold.waiting, play.pulls.counts.found) == (0, 0, 0)


def test_a_pull_that_waits_for_the_disk_is_refused_when_too_many_do() -> None:
    play = PullPlay(PullLimits(cold_bytes_max=1, held_max=1), store=replace(SMALL, warm_bytes=1))
    play.send("one", "two", "three")
    (refused,) = play.pull(0, 0, 0, count_max=1)
    assert (refused.code, refused.opaque) == (ResponseCode.SYSTEM_BUSY, 102)
    assert "1 pulls wait for the disk" in (refused.remark or "")
    while play.cold.step():
        pass
    assert [reply.opaque for reply in play.replies()] == [100, 101]


def test_connections_take_turns() -> None:
    reads, one, two = Reads(), FakeConnection(), FakeConnection()
    for number in range(3):
        reads.ask(one, pull(number))
    reads.ask(two, pull(10))
    reads.ask(two, pull(11))
    while reads.under_way:
        reads.finish()
    assert reads.begun == [0, 10, 1, 11, 2]


def test_a_connection_that_has_too_many_pulls_is_refused_alone() -> None:
    reads, one, two = Reads(), FakeConnection(), FakeConnection()
    answers = [reads.ask(one, pull(number)) for number in range(cold._WAITING_PER_CONNECTION_MAX + 2)]
    assert (answers.count(False), answers[-1]) == (1, False)
    assert reads.ask(two, pull(0)) and reads.ask(two, pull(1))


def test_what_a_closed_connection_waited_for_is_forgotten() -> None:
    reads, one = Reads(), FakeConnection()
    for number in range(3):
        reads.ask(one, pull(number))
    one.close("gone")
    reads.finish()
    assert (reads.begun, len(reads.cold), reads.cold.waiting) == ([0], 0, 0)


def test_reads_under_way_are_bounded_over_all_connections_and_all_come_in_time() -> None:
    reads = Reads()
    for number in range(cold._READS_MAX + 20):
        reads.ask(FakeConnection(), pull(number))
    assert (len(reads.under_way), reads.cold.waiting) == (cold._READS_MAX, 20)
    while reads.under_way:
        reads.finish()
    assert (sorted(reads.begun), len(reads.cold)) == (list(range(cold._READS_MAX + 20)), 0)


def test_an_answer_that_fails_leaves_no_other_pull_behind() -> None:
    reads, one = Reads(), FakeConnection()

    def fail() -> None:
        raise RuntimeError("the answer")

    reads.cold.read(one, [(0, 10)], fail)
    assert reads.ask(one, pull(1)) and reads.ask(one, pull(2))
    with pytest.raises(RuntimeError, match="the answer"):
        reads.finish()
    while reads.under_way:
        reads.finish()
    assert (reads.begun, len(reads.cold), reads.cold.waiting) == ([0, 1, 2], 0, 0)


def test_a_reader_that_is_full_or_at_once_does_not_recurse() -> None:
    reads, one = Reads(), FakeConnection()
    for number in range(1000):
        reads.ask(one, pull(number))
    reads.is_at_once = True
    reads.finish()
    assert (reads.begun, len(reads.cold), reads.cold.waiting) == (list(range(1000)), 0, 0)


def test_pulls_that_went_wait_no_more() -> None:
    reads, one = Reads(), FakeConnection()
    for number in range(4):
        reads.ask(one, pull(number))
    assert reads.cold.waiting == 3
    for left in (2, 1, 0):
        reads.finish()
        assert reads.cold.waiting == left
    for number in range(3):
        reads.ask(one, pull(number))
    assert reads.cold.waiting == 3
    one.close("gone")
    reads.finish()
    assert reads.cold.waiting == 0
