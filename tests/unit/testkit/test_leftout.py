"""What a run says about tests that did not run."""

from __future__ import annotations

import pytest

from testkit.leftout import NOT_RUN, lines_of_left_out


def test_each_reason_has_a_line_with_its_number_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOT_RUN, "tests/spark (Java 17); tests/e2e")
    reasons = ["Skipped: missing root", "Skipped: missing node", "Skipped: missing root"]
    assert lines_of_left_out(reasons) == [
        "left out: tests/spark (Java 17)",
        "left out: tests/e2e",
        "left out: 2 tests, missing root",
        "left out: 1 tests, missing node",
    ]


def test_a_run_that_left_nothing_out_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOT_RUN, raising=False)
    assert lines_of_left_out([]) == []


def test_many_reasons_end_in_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOT_RUN, raising=False)
    lines = lines_of_left_out(f"Skipped: missing {number}" for number in range(23))
    assert len(lines) == 21
    assert lines[-1] == "left out: 3 tests for other reasons; see pytest -rs"
