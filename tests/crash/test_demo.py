"""`make demo` in small: real programs, killed in the middle, and a message for every row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from testkit.sources import ROOT

WITHIN_S = 240.0  # a hang ends some time; a busy machine is no hang
ORDERS = "3000"  # seconds of them are left when the command that kills the master comes to it


def played(folder: Path, *flags: str) -> str:
    """What it showed."""
    command = [sys.executable, str(ROOT / "broker/demo/run.py"), *flags, "--folder", str(folder / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demonstration_ends_with_a_message_for_every_row(tmp_path: Path) -> None:
    shown = played(tmp_path, "--act", "first", "--orders", "600")
    for killed in ("order service 1 is gone", "order service 2 is gone", "the broker is gone"):
        assert re.search(rf"kill -9 \d+: {killed}", shown)
    rows = dict(re.findall(r"^([a-z: ]+?) +(\d+)  ", shown, re.MULTILINE))
    even = ("rows without message", "messages without row", "altered", "committed twice")
    assert [rows[name] for name in ("database rows", "messages delivered")] == ["600", "600"]
    assert {rows[name] for name in even} == {"0"}
    # What the two left behind, at least: one row that nobody had told of, one half that has no row.
    assert int(rows["asked: committed"]) >= 1
    assert int(rows["asked: rolled back"]) >= 1


def test_the_second_act_loses_a_master_and_nothing_else(tmp_path: Path) -> None:
    shown = played(tmp_path, "--act", "second", "--second-orders", ORDERS)
    (killed, before), (leads, after) = re.findall(r"(broker-a-\d)  +(?:master of|since) epoch (\d+)", shown)
    assert killed != leads and int(after) > int(before)
    rows = dict(re.findall(r"^([a-z ]+?) +(\d+)  ", shown, re.MULTILINE))
    assert [rows[name] for name in ("database rows", "messages delivered")] == [ORDERS, ORDERS]
    assert {rows[name] for name in ("lost", "messages without row", "committed twice")} == {"0"}
    assert re.search(r"^outage +[1-9]\d* ms", shown, re.MULTILINE)
