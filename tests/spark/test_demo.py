"""`make demo-spark` in small: a cluster, an order service, a job whose driver is killed, and the account."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testkit.sources import ROOT

WITHIN_S = 600.0  # a hang ends some time; it says by itself that it is late after seven minutes


@pytest.mark.slow
@pytest.mark.timeout(660)
def test_every_order_is_archived_once_and_counted_once(tmp_path: Path) -> None:
    command = [str(ROOT / ".venv/bin/python"), str(ROOT / "spark/demo/run.py"), "--orders", "1500"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "demo")], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 \d+: the driver is gone", done.stdout)
    rows = dict(re.findall(r"^([a-z,A-Z ]+?) +(\d+)(?:  |$)", done.stdout, re.MULTILINE))
    assert {rows[name] for name in ("orders in the ledger", "messages in Parquet", "orders counted")} == {"1500"}
    assert rows["cents counted"] == rows["cents of the ledger"]
