"""Requests that wait for their answer, with one timer for all."""

from __future__ import annotations

import asyncio

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.leaves.frames import Command
from gantry.transport.unanswered import Answer, Unanswered


class Timers:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.set: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: object, *args: object) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        self.set.append(asyncio.TimerHandle(at, call, args, loop))  # type: ignore[arg-type]
        return self.set[-1]

    def waiting(self) -> list[float]:
        return [timer.when() for timer in self.set if not timer.cancelled()]

    def move(self, to: float) -> None:
        """Call what is due."""
        self.now = to
        due = [timer for timer in self.set if timer.when() <= to and not timer.cancelled()]
        self.set = [timer for timer in self.set if timer not in due]
        for timer in due:
            timer._run()


class Play:
    def __init__(self) -> None:
        self.timers = Timers()
        self.unanswered = Unanswered(self.timers)  # type: ignore[arg-type]

    def ask(self, opaque: int, timeout_s: float) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        self.unanswered.add(opaque, answer, timeout_s, 0, "peer")
        return answer


async def test_a_thousand_requests_have_one_timer_that_stands_at_the_first_time_out() -> None:
    play = Play()
    answers = [play.ask(number, 3.0 + number) for number in range(1000)]
    assert play.timers.waiting() == [103.0]
    play.ask(1000, 1.0)
    assert play.timers.waiting() == [101.0]
    for number in range(1000):
        play.unanswered.answered(Command(0, opaque=number, flag=1))
    assert all(answer.done() for answer in answers) and len(play.unanswered) == 1


async def test_each_fails_when_its_own_time_is_up_and_none_before() -> None:
    play = Play()
    hasty, patient, last = play.ask(1, 1.0), play.ask(2, 30.0), play.ask(3, 31.0)
    play.timers.move(101.0)
    with pytest.raises(OutcomeUnknownError, match="peer: no answer within 1 s"):
        hasty.result()
    play.timers.move(129.9)
    assert not patient.done() and len(play.unanswered) == 2
    play.timers.move(130.0)
    assert patient.done() and not last.done()
    with pytest.raises(OutcomeUnknownError, match="within 30 s"):
        patient.result()
    last.cancel()


async def test_an_answer_after_the_time_out_has_no_effect() -> None:
    play = Play()
    answer = play.ask(1, 1.0)
    play.timers.move(101.0)
    play.unanswered.answered(Command(0, opaque=1, flag=1))
    assert isinstance(answer.exception(), OutcomeUnknownError) and play.timers.waiting() == []


async def test_time_outs_a_moment_apart_share_a_sweep() -> None:
    play = Play()
    answers = [play.ask(number, 1.0 + number / 10_000) for number in range(40)]
    play.timers.move(101.0)
    assert [answer.done() for answer in answers].count(True) == 1
    (at,) = play.timers.waiting()
    assert at == pytest.approx(101.005)
    play.timers.move(at)
    assert all(isinstance(answer.exception(), OutcomeUnknownError) for answer in answers)


async def test_a_lost_connection_fails_all_and_leaves_no_timer() -> None:
    play = Play()
    answer = play.ask(1, 1.0)
    play.unanswered.lost()
    with pytest.raises(OutcomeUnknownError, match="connection gone"):
        answer.result()
    assert play.timers.waiting() == [] and not len(play.unanswered)
