"""The programs of broker/docs/transaction-queue.md, run as a reader would: one process each, on a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import leftopen
from testkit.mnsservers import QueueServers
from testkit.patience import HANG_S
from testkit.sources import ROOT

_DOCUMENT = ROOT / "broker/docs/transaction-queue.md"
_ENDPOINT = "http://127.0.0.1:9407"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", _DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PRINTED = ("tea for two 1\n", "coffee\n")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with QueueServers(tmp_path_factory.mktemp("queues")) as servers:
        yield servers.endpoint


@pytest.mark.parametrize(("source", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)), ids=["asyncio", "blocking"])
def test_a_program_of_the_document_does_what_it_shows(source: str, printed: str, endpoint: str, tmp_path: Path) -> None:
    assert source.count(_ENDPOINT) == 1
    source = source.replace(_ENDPOINT, endpoint).replace('"orders")', f'"orders-{len(source)}")')
    script = tmp_path / "example.py"
    script.write_text(leftopen.PROGRAM + source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert "Warning" not in done.stderr and "never retrieved" not in done.stderr
