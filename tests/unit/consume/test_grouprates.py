from __future__ import annotations

import pytest

from gantry.consume.grouprates import GroupRates
from testkit.simclock import SimClock


def test_a_rate_is_over_the_last_minute() -> None:
    clock, counters = SimClock(), {("T", "g"): [100, 0]}
    rates = GroupRates(counters, clock)
    assert rates.per_second("T", "g") == 0.0
    for _ in range(20):
        clock.advance(10_000)
        counters["T", "g"][0] += 50
        rates.sample()
    assert rates.per_second("T", "g") == pytest.approx(5.0)
    clock.advance(10_000)
    assert rates.per_second("T", "g") == pytest.approx(300 / 70)


def test_a_group_that_took_nothing_has_no_rate() -> None:
    clock = SimClock()
    rates = GroupRates({}, clock)
    clock.advance(1000)
    assert rates.per_second("T", "g") == 0.0
