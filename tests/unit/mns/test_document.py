"""The tables and statements of broker/docs/transaction-queue.md are those of the code."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from gantry.mns.crashplaces import PLACES
from gantry.mns.transactionrules import TransactionTimes
from gantry.mns.transactionsteps import Action, LocalOutcome, Stage, TransactionSteps
from gantry.mns.transactiontable import POSTGRESQL, TransactionSql, statements
from testkit.sources import ROOT

DOCUMENT = (ROOT / "broker/docs/transaction-queue.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table that begins with this cell."""
    table = DOCUMENT.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_table_of_crashes_is_that_of_the_code() -> None:
    assert rows("last step before the end") == [
        [each.name, each.process, each.left, each.repair.value, each.fate.value] for each in PLACES
    ]


def test_the_state_machine_is_that_of_the_code() -> None:
    written = rows("stage")
    assert {row[0] for row in written} == {stage.name for stage in Stage if TransactionSteps(stage).action}
    for stage, action, done, failed in written:
        assert TransactionSteps(Stage[stage]).action is Action[action]
        reached = []
        for outcome in LocalOutcome if action == "LOCAL" else [None]:
            steps = TransactionSteps(Stage[stage])
            if outcome is None:
                steps.done()
            else:
                steps.decided(outcome)
            reached.append(steps.stage.name)
        assert done == ", ".join(reached)
        steps = TransactionSteps(Stage[stage])
        steps.failed()
        assert failed == steps.stage.name


def test_the_statements_are_those_of_the_code() -> None:
    found = re.findall(r"^```sql\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    code = statements(POSTGRESQL)
    texts = [getattr(code, name) for name in TransactionSql.__slots__]
    assert found == [";\n".join(re.sub(r"%\((\w+)\)s", r":\1", text) for text in texts) + ";\n"]
    with closing(sqlite3.connect(":memory:")) as database:  # and they are SQL, but for the lock
        values = {"handle": "h", "now_ms": 1, "before_ms": 2}
        for text in found[0].replace(" FOR UPDATE", "").split(";\n"):
            database.execute(text, values)


def test_the_times_are_those_of_the_code() -> None:
    times = TransactionTimes()
    assert f"retention {times.life_s} s (47 h), delay {times.delay_s} s (48 h)" in DOCUMENT
    assert f"delayed by the timeout ({times.timeout_s} s)" in DOCUMENT and times.check_within_s == 86_400
