"""The examples of the client's document, run as a reader would: one process each, against `gantry standalone`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import leftopen
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.sources import ROOT

_DOCUMENT = ROOT / "broker/docs/client.md"
_ADDRESS = "127.0.0.1:9876"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", _DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with GantryProcess(tmp_path_factory.mktemp("examples") / "data") as process:
        host, port = process.addresses["nameserver"]
        yield f"{host}:{port}"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_does_what_it_shows(number: int, nameserver: str, tmp_path: Path) -> None:
    source = EXAMPLES[number]
    assert _ADDRESS in source, "an example that asks nobody"
    script = tmp_path / "example.py"
    script.write_text(leftopen.PROGRAM + source.replace(_ADDRESS, nameserver), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert "never retrieved" not in done.stderr
    assert done.stdout.strip()


def test_every_kind_of_client_has_an_example() -> None:
    text = "".join(EXAMPLES)
    for name in (
        "Producer",
        "TransactionProducer",
        "Consumer",
        "OrderlyConsumer",
        "PullConsumer",
        "Puller",
        "Admin",
        "BlockingProducer",
        "BlockingPuller",
    ):
        assert f"{name}(" in text
