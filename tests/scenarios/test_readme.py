"""What the README promises a newcomer, done."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from testkit.process import GantryProcess
from testkit.sources import ROOT


def test_the_eight_lines_of_python_send_and_receive(tmp_path: Path) -> None:
    match = re.search(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert match is not None
    with GantryProcess(tmp_path / "data") as process:
        host, port = process.addresses["nameserver"]
        program = match[1].replace("127.0.0.1:9876", f"{host}:{port}")
        with subprocess.Popen(
            [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as popen:
            assert popen.stdout is not None
            assert popen.stdout.readline() == "b'tea, 250 g'\n"
            popen.send_signal(signal.SIGINT)
