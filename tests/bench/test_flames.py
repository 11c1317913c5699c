"""Flame graphs show the functions that took the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FLAMES = Path(__file__).with_name("flames.py")


def test_the_graph_of_a_way_names_its_functions(tmp_path: Path) -> None:
    command = [sys.executable, str(FLAMES), "--way", "transaction", "--seconds", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Permission" in done.stderr or "not permitted" in done.stderr:
        pytest.skip(f"missing the right to trace a process: {done.stderr}")
    assert done.returncode == 0, done.stderr
    graph = (tmp_path / "way-transaction.svg").read_text()
    assert "Connection.buffer_updated" in graph and "gantry/transaction/settle.py" in graph
