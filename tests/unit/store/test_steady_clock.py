"""The clock for durations: it goes on evenly, whatever happens to the wall clock."""

from __future__ import annotations

import pytest

from gantry.clock import SteadyClock
from testkit.simclock import HOUR_MS, SKEWS_MS, YEARS_MS, SimClock


def test_it_is_the_wall_clock_as_long_as_that_goes_on_evenly() -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    for number in range(1000):
        clock.advance(number % 7)
        assert steady.now_ms() == clock.now_ms() and not steady.is_ahead


@pytest.mark.parametrize("leap_ms", SKEWS_MS)
def test_a_second_is_a_second_whatever_happens_to_the_wall_clock(leap_ms: int) -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    begun_ms = steady.now_ms()
    for _ in range(50):
        clock.advance(10)
        steady.now_ms()
    clock.jump(leap_ms)
    for _ in range(50):
        clock.advance(10)
        assert steady.now_ms() >= begun_ms
    assert 900 <= steady.elapsed_ms(begun_ms) <= 1000


@pytest.mark.parametrize("before_ms", [0, 100])
def test_after_a_leap_forwards_what_began_before_and_behind_it_is_measured_rightly(before_ms: int) -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    first_ms = steady.now_ms()
    for _ in range(3):
        clock.advance(before_ms)
        clock.jump(HOUR_MS)
        middle_ms = steady.now_ms()
    clock.advance(5)
    assert steady.elapsed_ms(first_ms) == 3 * before_ms + 5
    assert steady.elapsed_ms(middle_ms) == 5


def test_it_meets_the_wall_clock_again_and_never_goes_back_until_then() -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    clock.jump(-10_000)
    before_ms = steady.now_ms()
    assert steady.is_ahead
    for _ in range(1001):
        clock.advance(100)
        now_ms = steady.now_ms()
        assert before_ms <= now_ms and now_ms - before_ms <= 100
        before_ms = now_ms
    assert not steady.is_ahead and steady.now_ms() == clock.now_ms()


def test_a_wall_clock_that_is_corrected_again_changes_nothing() -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    begun_ms = steady.now_ms()
    clock.jump(-HOUR_MS)
    steady.now_ms()
    clock.advance(1000)
    clock.jump(HOUR_MS)
    assert steady.now_ms() == clock.now_ms() == begun_ms + 1000 and not steady.is_ahead
    assert steady.elapsed_ms(begun_ms) == 1000


@pytest.mark.parametrize("behind_ms", [1, HOUR_MS, YEARS_MS])
def test_no_stored_time_is_ahead_of_it(behind_ms: int) -> None:
    clock = SimClock()
    stored_ms = clock.now_ms() + behind_ms
    steady = SteadyClock(clock)
    steady.reach(stored_ms)
    assert steady.now_ms() == stored_ms
    clock.advance(1000)
    assert stored_ms + 900 <= steady.now_ms() <= stored_ms + 1000
    steady.reach(stored_ms - 5)
    assert steady.now_ms() >= stored_ms + 900


def test_it_goes_on_after_a_leap_that_was_set_back_before_it_was_looked_at() -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    clock.jump(HOUR_MS)
    ahead_ms = steady.now_ms()  # a message was stored just then
    clock.jump(-HOUR_MS)
    for _ in range(100):
        clock.advance(100)
        steady.look()
    assert 8_900 <= steady.now_ms() - ahead_ms <= 10_000, "a tenth slower, from the next look on"


@pytest.mark.parametrize("leap_ms", [HOUR_MS, YEARS_MS])
def test_a_leap_that_was_set_back_before_it_was_looked_at_makes_nothing_older(leap_ms: int) -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    before_ms = steady.now_ms()
    clock.advance(50)
    clock.jump(leap_ms)
    ahead_ms = steady.now_ms()
    clock.jump(-leap_ms)
    clock.advance(50)
    assert steady.elapsed_ms(before_ms) in (99, 100)
    assert steady.elapsed_ms(ahead_ms) in range(51)
    clock.advance(1000)
    assert 900 <= steady.elapsed_ms(ahead_ms) <= 1050 and 1000 <= steady.elapsed_ms(before_ms) <= 1100
