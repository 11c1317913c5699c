"""The state machine of a transaction: every way through it, its invariant, and the judgement of a commit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gantry.mns import transactionsteps
from gantry.mns.transactionsteps import Action, LocalOutcome, Settlement, Stage, TransactionSteps, after_commit

ENDS = {Stage.DONE, Stage.UNCONFIRMED, Stage.LEFT, Stage.ABANDONED}
Story = tuple[tuple[Action, str], ...]


def stories(stage: Stage = Stage.NEW, so_far: Story = ()) -> Iterator[tuple[Stage, Story]]:
    """Every way from a stage to an end: the actions with what became of them."""
    action = TransactionSteps(stage).action
    if action is None:
        yield stage, so_far
        return
    ways = ["failed", *(LocalOutcome if action is Action.LOCAL else ["done"])]
    for way in ways:
        steps = TransactionSteps(stage)
        if isinstance(way, LocalOutcome):
            steps.decided(way)
        else:
            getattr(steps, way)()
        yield from stories(steps.stage, (*so_far, (action, str(way))))


def test_every_way_ends_and_every_end_is_reached() -> None:
    found = list(stories())
    assert {stage for stage, _ in found} == ENDS and len(found) == len(set(found)) == 11


def test_the_local_transaction_begins_only_when_the_operation_log_is_stored() -> None:
    for _, story in stories():
        actions = [action for action, _ in story]
        if Action.LOCAL in actions:
            assert story[:2] == ((Action.PREPARE, "done"), (Action.LOG, "done"))


def test_the_operation_log_is_deleted_only_when_the_message_is_settled() -> None:
    for start in (Stage.NEW, Stage.LOGGED):
        for _, story in stories(start):
            for number, (action, _) in enumerate(story):
                if action is Action.CONFIRM:
                    before, way = story[number - 1]
                    assert before in (Action.COMMIT, Action.ROLLBACK) and way == "done"


def test_a_message_is_committed_only_after_a_committed_local_transaction() -> None:
    for _, story in stories():
        for number, (action, _) in enumerate(story):
            if action is Action.COMMIT:
                assert story[number - 1] == (Action.LOCAL, str(LocalOutcome.COMMITTED))


def test_an_unknown_outcome_settles_nothing() -> None:
    for stage, story in stories():
        if story[-1][0] is Action.LOCAL:
            assert stage is Stage.LEFT
    assert {way for stage, story in stories() if stage is Stage.LEFT for action, way in story[-1:]} >= {
        str(LocalOutcome.UNKNOWN), "failed",
    }  # fmt: skip


def test_the_table_of_the_module_is_what_the_code_does() -> None:
    text = transactionsteps.__doc__ or ""
    rows = re.findall(r"^    ([A-Z_]+) +([A-Z]+) {2,}(\S.*?) {2,}([A-Z]+)$", text, re.MULTILINE)
    assert len(rows) == 7
    for stage, action, done, failed in rows:
        steps = TransactionSteps(Stage[stage])
        assert steps.action is Action[action]
        if steps.action is Action.LOCAL:
            ends = []
            for outcome in LocalOutcome:
                steps = TransactionSteps(Stage[stage])
                steps.decided(outcome)
                ends.append(steps.stage.name)
            assert done == f"{ends[0]}, {ends[1]}, {ends[2]} (unknown)"
        else:
            steps.done()
            assert steps.stage.name == done
        steps = TransactionSteps(Stage[stage])
        steps.failed()
        assert steps.stage.name == failed


def test_a_step_out_of_order_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        TransactionSteps(Stage.LOGGED).done()
    with pytest.raises(AssertionError):
        TransactionSteps(Stage.NEW).decided(LocalOutcome.COMMITTED)


@pytest.mark.parametrize(
    ("next_visible_ms", "now_ms", "settlement"),
    [
        (None, 999, Settlement.BEFORE),
        (None, 1000, Settlement.LATE),
        (999, 0, Settlement.NOW),
        (1000, 0, Settlement.LATE),  # the server took it, and no consumer will see it
    ],
)
def test_a_commit_is_late_from_the_end_of_the_life_on(
    next_visible_ms: int | None, now_ms: int, settlement: Settlement
) -> None:
    assert after_commit(next_visible_ms, now_ms, 1000) is settlement
