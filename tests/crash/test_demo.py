"""`make demo` in small: real programs, a real kill -9, and every acknowledged order accounted for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from testkit.sources import ROOT

WITHIN_S = 60.0


def test_the_demonstration_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "broker/demo/run.py"), "--orders", "600", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    rows = dict(re.findall(r"^(sent|acknowledged|received|lost|altered) +(\d+)  ", done.stdout, re.MULTILINE))
    assert rows == {"sent": "600", "acknowledged": "600", "received": "600", "lost": "0", "altered": "0"}
