"""When a change of the in-sync set is worth making."""

from __future__ import annotations

import pytest

from gantry.replication.members import Member
from gantry.replication.pace import Pace
from gantry.replication.timers import Waits

ONE = Member(1, 0)


def test_a_member_joins_after_three_steady_seconds() -> None:
    pace = Pace(Waits())
    assert not pace.may_join(ONE, 10.0, has_enough=True)
    pace.caught_up(ONE, 10.0)
    pace.caught_up(ONE, 12.0)
    assert not pace.may_join(ONE, 12.9, has_enough=True)
    assert pace.may_join(ONE, 13.0, has_enough=True)


def test_a_member_that_falls_behind_begins_again() -> None:
    pace = Pace(Waits())
    pace.caught_up(ONE, 10.0)
    pace.behind(ONE)
    pace.caught_up(ONE, 12.0)
    assert not pace.may_join(ONE, 14.9, has_enough=True)


def test_a_short_set_takes_anyone_who_has_caught_up() -> None:
    pace = Pace(Waits())
    assert not pace.may_join(ONE, 10.0, has_enough=False)
    pace.caught_up(ONE, 10.0)
    assert pace.may_join(ONE, 10.0, has_enough=False)


def test_a_link_that_flaps_waits_for_a_quieter_minute() -> None:
    pace = Pace(Waits())
    pace.caught_up(ONE, 0.0)
    for second in range(6):
        assert pace.may_join(ONE, 10.0 + second, has_enough=True)
        pace.changed(10.0 + second)
    assert not pace.may_join(ONE, 20.0, has_enough=True)
    assert pace.may_join(ONE, 20.0, has_enough=False)
    assert pace.may_join(ONE, 70.0, has_enough=True)


@pytest.mark.parametrize(
    ("silent_s", "lag_s", "leaves"),
    [(0.0, 15.0, False), (0.0, 15.1, True), (2.9, 0.0, False), (3.0, 0.0, True)],
)
def test_a_member_leaves_when_it_is_gone_or_too_far_behind(silent_s: float, lag_s: float, leaves: bool) -> None:
    assert Pace(Waits()).must_leave(silent_s, lag_s) is leaves
