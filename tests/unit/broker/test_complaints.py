"""One line per cause and minute."""

from __future__ import annotations

import logging

import pytest

from gantry.broker.complaints import Complaints
from testkit.simclock import SimClock


def test_a_cause_is_said_once_a_minute_and_others_at_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    complaints = Complaints(logging.getLogger("test"), clock)
    for _ in range(100):
        complaints.say("a", "a went wrong")
    complaints.say("b", "b went wrong")
    assert caplog.messages == ["a went wrong", "b went wrong"]
    clock.advance(60_000)
    complaints.say("a", "a went wrong")
    assert caplog.messages[-1] == "a went wrong (99 more of this kind since the last line)"


def test_the_causes_remembered_are_bounded() -> None:
    complaints = Complaints(logging.getLogger("test"), SimClock())
    for number in range(5000):
        complaints.say(str(number), "x", level=logging.DEBUG)
    assert len(complaints._said) <= 1000


def test_a_name_that_somebody_made_up_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("test"), SimClock())
    complaints.say("a", "no producer of x\n2026 ERROR all is lost\x1b[31m: Z\u00fcrich")
    assert caplog.messages == ["no producer of x\\n2026 ERROR all is lost\\x1b[31m: Z\u00fcrich"]
