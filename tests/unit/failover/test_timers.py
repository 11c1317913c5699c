from __future__ import annotations

import pytest

from gantry.failover.timers import TIMERS, Timers


def test_the_sets_are_those_that_are_documented() -> None:
    assert TIMERS["default"] == Timers(5.0, 15, 2.5, 0.5)
    assert TIMERS["fast"] == Timers(2.0, 6, 1.0, 0.25)


@pytest.mark.parametrize("times", [(5.0, 2, 0.5, 1.0), (6.0, 6, 1.0, 1.0), (5.0, 15, 3.0, 1.0), (2.0, 6, 1.0, 2.0)])
def test_times_that_do_not_fit_together_are_refused(times: tuple[float, int, float, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Timers(*times)


def test_a_question_is_over_before_the_next_renewal_is_due() -> None:
    assert all(timers.answer_within_s <= timers.renew_every_s / 2 for timers in TIMERS.values())
