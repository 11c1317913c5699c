"""What a run of the tests left out, and why: one line for each reason, above pytest's own summary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

# Set by `make test QUICK=1`: folders of tests that were not even collected, divided by ";".
NOT_RUN = "TESTS_NOT_RUN"
_REASONS_MAX = 20


def lines_of_left_out(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason of a skipped test, most tests first, and for each folder that was not run."""
    folders = [folder.strip() for folder in os.environ.get(NOT_RUN, "").split(";") if folder.strip()]
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons).most_common()
    lines = [f"left out: {folder}" for folder in folders]
    lines += [f"left out: {count} tests, {reason}" for reason, count in counted[:_REASONS_MAX]]
    hidden = sum(count for _, count in counted[_REASONS_MAX:])
    return [*lines, f"left out: {hidden} tests for other reasons; see pytest -rs"] if hidden else lines
