"""What the README promises a newcomer, done."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from testkit import leftopen
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.sources import ROOT

_README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", _README, re.MULTILINE | re.DOTALL)


def program(number: int, process: GantryProcess) -> str:
    """One of the README's programs, pointed at this broker."""
    host, port = process.addresses["nameserver"]
    return PROGRAMS[number].replace("127.0.0.1:9876", f"{host}:{port}")


# Anyone who is started in the background of a shell ignores SIGINT, and so would the program.
_HEARS_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def test_the_eight_lines_of_python_send_and_receive(tmp_path: Path) -> None:
    with (
        GantryProcess(tmp_path / "data") as process,
        subprocess.Popen(
            [sys.executable, "-u", "-c", _HEARS_SIGINT + program(0, process)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as popen,
    ):
        assert popen.stdout is not None
        try:
            assert popen.stdout.readline() == "b'tea, 250 g'\n"
            popen.send_signal(signal.SIGINT)
            popen.wait(HANG_S)
        finally:
            popen.kill()


def test_the_ten_lines_with_sqlite_leave_a_row_and_a_message(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data") as process:
        command = [sys.executable, "-W", "error", "-c", leftopen.PROGRAM + program(1, process)]
        subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, timeout=HANG_S, check=True)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
            (row,) = shop.execute("SELECT goods, message_id FROM orders")
        host, port = process.addresses["nameserver"]
        command = [sys.executable, "-m", "gantry.cli.main", "topic", "find", "orders", "--id", row[1]]
        found = subprocess.run(
            [*command, "--namesrv", f"{host}:{port}"], capture_output=True, text=True, timeout=HANG_S, check=True
        )
        assert row[0] in found.stdout
