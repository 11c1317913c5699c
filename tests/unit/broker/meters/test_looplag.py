"""Lateness by moments: a long turn counts for as long as it was."""

from __future__ import annotations

from gantry.broker.meters.looplag import LAG_BOUNDS_S, PERIOD_S, LoopLag
from testkit.simclock import SimClock


def _lag() -> tuple[LoopLag, SimClock]:
    clock = SimClock()
    lag = LoopLag(clock)
    lag.sample()
    return lag, clock


def test_the_first_run_says_nothing_and_a_punctual_one_is_a_moment_without_lag() -> None:
    lag, clock = _lag()
    assert sum(lag.moments) == 0
    clock.advance(round(1000 * PERIOD_S))
    lag.sample()
    assert lag.moments[0] == 1 and sum(lag.moments) == 1


def test_a_run_that_is_late_counts_where_its_lateness_belongs() -> None:
    lag, clock = _lag()
    clock.advance(round(1000 * PERIOD_S) + 7)
    lag.sample()
    assert lag.moments[LAG_BOUNDS_S.index(0.01)] == 1 and sum(lag.moments) == 1
    assert abs(lag.sum_s - 0.007) < 1e-6


def test_a_turn_of_a_second_counts_as_the_moments_that_it_took() -> None:
    lag, clock = _lag()
    clock.advance(round(1000 * PERIOD_S) + 1000)
    lag.sample()
    assert sum(lag.moments) == 1 + round(1 / PERIOD_S)
    over_100_ms = sum(lag.moments[LAG_BOUNDS_S.index(0.1) + 1 :])
    assert abs(over_100_ms - 0.9 / PERIOD_S) <= 1, "nine tenths of them were over 100 ms late"


def test_after_a_turn_everything_is_punctual_again() -> None:
    lag, clock = _lag()
    clock.advance(5_000)
    lag.sample()
    before = list(lag.moments)
    clock.advance(round(1000 * PERIOD_S))
    lag.sample()
    assert sum(lag.moments) == sum(before) + 1 and lag.moments[0] == before[0] + 1


def test_a_stopped_process_costs_a_bounded_time() -> None:
    lag, clock = _lag()
    clock.advance(24 * 3_600_000)
    lag.sample()
    assert sum(lag.moments) <= 3_001
