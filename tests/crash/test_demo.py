"""`make demo` in small: real programs, killed in the middle, and a message for every row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from testkit.sources import ROOT

WITHIN_S = 240.0  # a hang ends some time; a busy machine is no hang


def test_the_demonstration_ends_with_a_message_for_every_row(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "broker/demo/run.py"), "--orders", "600", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for killed in ("order service 1 is gone", "order service 2 is gone", "the broker is gone"):
        assert re.search(rf"kill -9 \d+: {killed}", done.stdout)
    rows = dict(re.findall(r"^([a-z: ]+?) +(\d+)  ", done.stdout, re.MULTILINE))
    even = ("rows without message", "messages without row", "altered", "committed twice")
    assert [rows[name] for name in ("database rows", "messages delivered")] == ["600", "600"]
    assert {rows[name] for name in even} == {"0"}
    # What the two left behind, at least: one row that nobody had told of, one half that has no row.
    assert int(rows["asked: committed"]) >= 1
    assert int(rows["asked: rolled back"]) >= 1
