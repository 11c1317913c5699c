"""The lines of curl in broker/docs/queues.md, typed as they stand there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.typed import read

_PORT = "127.0.0.1:9407"


def test_the_lines_of_the_document_do_what_it_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("missing curl; install the Debian package of that name")
    (script,) = [one.text for one in read("broker/docs/queues.md") if one.kind == "sh"]
    assert _PORT in script
    folder = tmp_path / "typed"
    folder.mkdir()
    with GantryProcess(tmp_path / "store", {"standalone.queues_port": "0"}) as process:
        script = script.replace(_PORT, "{}:{}".format(*process.addresses["queues"]))
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("<MessageBody>a book<", "<Priority>3<", "<ChangeVisibility ", "<VisibilityTimeout>60<"):
        assert word in done.stdout, done.stdout
    assert "<ActiveMessages>0<" in done.stdout and "<InactiveMessages>0<" in done.stdout
