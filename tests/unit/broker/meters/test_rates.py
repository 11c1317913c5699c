"""Rates over three windows, and the counts of two mornings."""

from __future__ import annotations

from gantry.broker.meters.rates import Rates
from testkit.simclock import SimClock


def test_a_rate_looks_back_as_far_as_its_window_or_as_there_is() -> None:
    clock = SimClock()
    counters = {"put": 0, "got": 0}
    rates = Rates(lambda: dict(counters), clock)
    assert rates.per_second("put") == "0.0 0.0 0.0"
    for number in range(12):
        counters["put"] += 100 if number < 6 else 10
        counters["got"] += 10
        clock.advance(10_000)
        rates.sample()
    clock.advance(10_000)
    counters["put"] += 10
    assert rates.per_second("put").split() == ["1.0", "1.0", "5.2"]
    assert rates.total("put", "got") == 670 + 120


def test_at_midnight_today_becomes_yesterday() -> None:
    clock = SimClock()
    counters = {"put": 0}
    rates = Rates(lambda: dict(counters), clock)
    for total in (100, 300, 600):
        counters["put"] = total
        clock.advance(24 * 3600 * 1000)
        rates.sample()
    assert (rates.yesterday_morning["put"], rates.today_morning["put"]) == (300, 600)
