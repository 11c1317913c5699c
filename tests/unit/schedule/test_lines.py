"""When a line's head is due."""

from __future__ import annotations

from gantry.schedule.lines import NEVER, Line

NOW_MS = 1_700_000_000_000


def test_a_message_is_due_when_its_time_has_come() -> None:
    line = Line(1, 1000, 0, 5)
    assert not line.is_due(0, NOW_MS + 1, NOW_MS, 0.0) and line.is_due(0, NOW_MS, NOW_MS, 0.0)
    assert not line.is_due(0, NEVER, NOW_MS, 0.0)


def test_after_a_set_back_a_message_waits_for_its_duration_from_the_notice_on() -> None:
    line = Line(1, 1000, 0, 5)
    far_ms = NOW_MS + 3_600_000
    assert not line.is_due(0, far_ms, NOW_MS, 50.0)
    assert not line.is_due(4, far_ms, NOW_MS, 50.9) and line.is_due(0, far_ms, NOW_MS, 51.0)
    line.end = 9
    assert not line.is_due(5, far_ms, NOW_MS, 51.0), "came after the notice: there is a new one"
    assert line.is_due(8, far_ms, NOW_MS, 52.0)
