from __future__ import annotations

import pytest

from gantry.failover.standing import patience_s
from gantry.replication.pace import STEADY_S, Pace
from gantry.replication.timers import (
    FLUSH_S,
    LINK_S,
    LINK_S_MIN,
    MAX_LAG_S,
    SILENCE_S,
    TIMERS,
    Timers,
    Waits,
    derive_serving_waits,
    derive_usual_timers,
    derive_waits,
    slow_after_s,
)


def test_the_sets_are_those_that_are_documented() -> None:
    assert TIMERS["default"] == Timers(5.0, 15, 2.5, 0.5)
    assert TIMERS["fast"] == Timers(2.0, 6, 1.0, 0.25)


@pytest.mark.parametrize("times", [(5.0, 2, 0.5, 1.0), (6.0, 6, 1.0, 1.0), (5.0, 15, 3.0, 1.0), (2.0, 6, 1.0, 2.0)])
def test_times_that_do_not_fit_together_are_refused(times: tuple[float, int, float, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Timers(*times)


def test_a_question_is_over_before_the_next_renewal_is_due() -> None:
    assert all(timers.answer_within_s <= timers.renew_every_s / 2 for timers in TIMERS.values())


@pytest.mark.parametrize("name", sorted(TIMERS))
def test_every_time_lies_where_the_next_one_needs_it(name: str) -> None:
    """From a beat to the lease: each is over before what depends on it begins."""
    timers = TIMERS[name]
    serving, waits = derive_serving_waits(timers.renew_every_s), derive_waits(timers.renew_every_s)
    assert serving.again_s <= timers.answer_within_s, "an unknown outcome is looked up before the next renewal"
    assert 3 * serving.beat_s <= serving.heard_s, "two beats may be lost"
    assert timers.renew_every_s < serving.heard_s < serving.fresh_s, "one renewal may be late"
    assert serving.fresh_s + timers.poll_every_s <= timers.suspect_after_s, "who was cut off has stopped when sealed"
    assert serving.heard_s < timers.suspect_after_s, "an election after a promise waits for one suspicion"
    assert serving.fresh_s < timers.lease_s * 2 / 3 < timers.lease_s
    assert waits.silence_s < waits.link_s <= timers.suspect_after_s, "links are over when the suspicion begins"
    assert waits.late_s <= timers.suspect_after_s and waits.max_lag_s <= 2 * timers.suspect_after_s
    assert waits.flush_s == timers.suspect_after_s, "a member is as patient with its disk as its coordinator is with it"
    assert Pace(waits).must_leave(waits.silence_s, 0.0) and not Pace(waits).must_leave(waits.silence_s - 0.01, 0.0)
    assert patience_s(timers.suspect_after_s, 0) == timers.suspect_after_s
    assert derive_usual_timers(timers.renew_every_s) == timers, "the named sets are made of their renewals"


def test_waits_are_bounded_whatever_the_timers_are() -> None:
    assert derive_waits(60.0) == Waits(LINK_S, SILENCE_S, MAX_LAG_S)
    assert derive_waits(0.5).link_s == LINK_S_MIN, "a member with the default timers says something every second"
    assert Waits().flush_s == FLUSH_S, "without a register nobody suspects"


@pytest.mark.parametrize("ack_timeout_s", [0.5, 3.0, 10.0])
def test_a_message_that_waits_for_two_slow_syncs_is_answered_in_time(ack_timeout_s: float) -> None:
    assert 0.25 <= slow_after_s(ack_timeout_s) <= ack_timeout_s / 2 < STEADY_S + ack_timeout_s
