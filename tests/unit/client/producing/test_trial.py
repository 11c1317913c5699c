"""Where to send next after a failure, and when."""

from __future__ import annotations

from gantry.client.producing import trial as trials
from gantry.client.producing.trial import Trial
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.transport import client as transport


def fail(trial: Trial, group: str, error: RefusedError | OutcomeUnknownError | UnreachableError | None = None) -> float:
    trial.current = group
    trial.failed(error or UnreachableError(group))
    return trial.pause_s()


def test_the_other_groups_are_tried_at_once_then_pauses_grow() -> None:
    trial = Trial()
    trial.groups = 3
    assert [fail(trial, group) for group in "abc"] == [0, 0, 0.05]
    assert [fail(trial, group) for group in "abc"] == [0, 0, 0.1]


def test_a_fixed_queue_is_not_hammered() -> None:
    trial = Trial()
    trial.groups = 2
    pauses = [fail(trial, "a") for _ in range(8)]
    assert pauses == [0, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_the_longest_pauses_together_leave_a_broker_that_is_back_alone_for_less_than_two_seconds() -> None:
    assert trials._PAUSE_LAST_S + transport._REST_LAST_S < 2.0


def test_only_refusals_for_good_end_the_trial() -> None:
    trial = Trial()
    for error in (UnreachableError(""), OutcomeUnknownError(""), RefusedError(2, "busy"), RefusedError(17, "no topic")):
        fail(trial, "a", error)
        assert trial.may_go_on
    fail(trial, "a", RefusedError(13, "illegal"))
    assert not trial.may_go_on


def test_an_attempt_without_an_answer_is_remembered() -> None:
    trial = Trial()
    assert trial.unknown is None
    lost = OutcomeUnknownError("lost")
    fail(trial, "a", lost)
    fail(trial, "a", RefusedError(2, "busy"))
    assert trial.unknown is lost
