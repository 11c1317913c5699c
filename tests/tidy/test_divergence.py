"""Each line of divergence.md names a test that exists."""

from __future__ import annotations

import re

from testkit.sources import ROOT

PAGE = ROOT / "broker" / "docs" / "divergence.md"


def test_every_divergence_is_pinned_by_a_test() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| RocketMQ |")]
    assert len(rows) > 10
    for row in rows:
        pinned = re.search(r"`([\w/]+\.py)(?:::(\w+))?` \|$", row)
        assert pinned is not None, row
        path, name = ROOT / "tests" / pinned[1], pinned[2]
        assert path.exists(), f"{row}\n{path} is not there"
        assert name is None or f"def {name}(" in path.read_text(encoding="utf-8"), f"{row}\nno {name} in {path}"
