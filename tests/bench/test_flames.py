"""Flame graphs show the functions that took the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.patience import HANG_S

FLAMES = Path(__file__).with_name("flames.py")


WANTED = ("Connection.buffer_updated", "gantry/transaction/settle.py")


def test_the_graph_of_a_way_names_its_functions(tmp_path: Path) -> None:
    graph = ""
    for seconds in (2, 8, 32):  # a busy machine takes fewer samples
        command = [sys.executable, str(FLAMES), "--way", "transaction", "--seconds", str(seconds)]
        command += ["--out", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        if "Permission" in done.stderr or "not permitted" in done.stderr:
            pytest.skip(f"missing the right to trace a process: {done.stderr}")
        assert done.returncode == 0, done.stderr
        graph = (tmp_path / "way-transaction.svg").read_text()
        if all(name in graph for name in WANTED):
            break
    assert [name for name in WANTED if name not in graph] == []
