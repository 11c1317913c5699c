"""Replies wait for the mark, leave in one write per connection, and never wait for ever."""

from __future__ import annotations

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.store.watermarks import Watermark
from gantry.wire.codes import ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.simclock import SimClock


def reply(opaque: int) -> bytes:
    return frames.encode(Command(0, opaque=opaque, flag=1, ext={"msgId": "x", "queueOffset": "7"}))


class Play:
    def __init__(self, bytes_max: int = 10_000) -> None:
        self.clock = SimClock()
        self.written = Watermark(0)
        self.confirmed = Watermark(0, self.written)
        self.acks = Acks(self.confirmed, self.clock, AckLimits(5.0, bytes_max), flush_is_late, None)
        self.connection = FakeConnection()

    def park(self, end: int, *opaques: int, connection: FakeConnection | None = None) -> None:
        self.written.advance(end)
        replies = b"".join([reply(opaque) for opaque in opaques])
        self.acks.park(end, connection or self.connection, replies, len(opaques))  # type: ignore[arg-type]

    def opaques(self, connection: FakeConnection | None = None) -> list[int]:
        return [command.opaque for command in (connection or self.connection).take()]


def test_nothing_leaves_before_the_mark_has_passed_the_runs_end() -> None:
    play = Play()
    play.park(100, 1, 2)
    play.park(200, 3)
    play.confirmed.advance(99)
    assert play.opaques() == [] and len(play.acks) == 3
    play.confirmed.advance(199)
    assert play.opaques() == [1, 2]
    play.confirmed.advance(200)
    assert play.opaques() == [3]
    assert len(play.acks) == 0 and play.acks.parked_bytes == 0 and play.acks.acked == 3


def test_what_is_confirmed_already_is_not_parked() -> None:
    play = Play()
    play.written.advance(100)
    play.confirmed.advance(100)
    play.park(100, 1)
    assert play.opaques() == [1] and len(play.acks) == 0


def test_one_release_is_one_write_per_connection() -> None:
    play = Play()
    other = FakeConnection()
    for number in range(10):
        play.park(10 * (number + 1), number, connection=other if number % 2 else play.connection)
    play.confirmed.advance(100)
    assert (len(play.connection.chunks), len(other.chunks)) == (1, 1)
    assert play.opaques() == [0, 2, 4, 6, 8] and play.opaques(other) == [1, 3, 5, 7, 9]


def test_who_waits_too_long_hears_that_the_outcome_is_unknown() -> None:
    play = Play()
    play.park(100, 1)
    play.clock.advance(3000)
    play.park(200, 2)
    play.clock.advance(1999)
    play.acks.expire()
    assert play.opaques() == []
    play.clock.advance(1)
    play.acks.expire()
    (late,) = play.connection.take()
    assert (late.opaque, late.code, late.ext["queueOffset"]) == (1, 10, "7")
    assert late.remark is not None and "unknown" in late.remark
    play.confirmed.advance(200)
    assert play.opaques() == [2], "the late one is not answered twice"
    assert (play.acks.late, play.acks.acked) == (1, 1)


def test_closing_answers_everybody() -> None:
    play = Play()
    play.park(100, 1, 2)
    play.acks.close()
    assert [command.code for command in play.connection.take()] == [10, 10]
    assert len(play.acks) == 0


def test_who_parks_beyond_the_limit_is_not_read_from_until_half_is_gone() -> None:
    play = Play(bytes_max=4 * len(reply(1)))
    other = FakeConnection()
    for number in range(4):
        play.park(100 * (number + 1), number)
    assert not play.connection.pauses
    play.park(500, 4, connection=other)
    assert other.pauses and not play.connection.pauses
    play.confirmed.advance(200)
    assert other.pauses
    play.confirmed.advance(300)
    assert not other.pauses


def test_a_time_out_a_close_and_a_seal_let_paused_connections_be_read_again() -> None:
    for leave in ("time-out", "close", "seal"):
        play = Play(bytes_max=2 * len(reply(1)))
        for number in range(3):
            play.park(100 * (number + 1), number)
        assert play.connection.pauses, leave
        play.clock.advance(5000)
        {"time-out": play.acks.expire, "close": play.acks.close, "seal": play.acks.seal}[leave]()
        assert not play.connection.pauses and len(play.acks) == 0, leave


def test_what_was_parked_while_the_serving_lease_was_over_leaves_when_it_is_back() -> None:
    play = Play(bytes_max=2 * len(reply(1)))
    serves = False
    play.acks = Acks(play.written, play.clock, AckLimits(5.0, 2 * len(reply(1))), flush_is_late, lambda: serves)
    for number in range(3):
        play.park(100 * (number + 1), number)
    play.acks.expire()
    assert play.opaques() == [] and play.connection.pauses
    serves = True
    play.clock.advance(5000)  # on a quiet broker no mark moves that would release them
    play.acks.expire()
    assert [command.code for command in play.connection.take()] == [0, 0, 0] and not play.connection.pauses
    assert (play.acks.acked, play.acks.late) == (3, 0)


def test_waiting_is_measured_per_message() -> None:
    play = Play()
    play.park(100, 1, 2, 3)
    play.clock.advance(15)
    play.confirmed.advance(100)
    assert sum(play.acks.latencies) == 3 and play.acks.latencies[4] == 3
    assert abs(play.acks.latency_sum_s - 0.045) < 1e-9


def test_after_a_seal_nothing_is_acknowledged_and_who_waits_hears_that_the_outcome_is_unknown() -> None:
    play = Play()
    play.park(100, 1)
    play.acks.seal()
    (answer,) = play.connection.take()
    assert answer.code == ResponseCode.SYSTEM_BUSY and "outcome is unknown" in (answer.remark or "")
    play.confirmed.advance(100)
    play.park(100, 2)  # what was on its way into the log
    play.park(200, 3)
    play.confirmed.advance(200)
    assert play.opaques() == [] and play.acks.acked == 0
    play.clock.advance(5_001)
    play.acks.expire()
    assert [answer.code for answer in play.connection.take()] == [ResponseCode.SYSTEM_BUSY] * 2
