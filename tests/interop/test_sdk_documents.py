"""The programs of proxy.md for those who come from RocketMQ 5, run as they stand by RocketMQ's own clients."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import prepare
from interop.conftest import require
from interop.test_java_programs import Program
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.sources import ROOT

PAGE = (ROOT / "broker/docs/proxy.md").read_text(encoding="utf-8")
MADE = "gantry topic create orders"
LIVES_MAX = 5


def program(language: str, endpoints: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found.count("127.0.0.1:8081") == 1
    return found.replace("127.0.0.1:8081", endpoints)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GantryProcess]:
    """A `gantry standalone` that has the topic, made by the page's line."""
    assert f"    {MADE}\n" in PAGE
    with GantryProcess(tmp_path / "store", {"standalone.grpc_port": "0"}) as process:
        line = [sys.executable, "-m", "gantry.cli.main", *MADE.split()[1:]]
        line += ["--namesrv", "{}:{}".format(*process.addresses["nameserver"])]
        subprocess.run(line, check=True, timeout=HANG_S, capture_output=True)
        yield process


def test_the_program_in_python_sends_and_receives(cluster: GantryProcess, tmp_path: Path) -> None:
    require("cpp")
    source = tmp_path / "shop.py"
    source.write_text(program("python", "{}:{}".format(*cluster.addresses["grpc"])))
    said = ""
    for _ in range(LIVES_MAX):  # a receive may find nothing while a busy machine starts
        done = subprocess.run(
            [str(prepare.sdk_python()), str(source)], capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        said += done.stdout
        if "tea, 250 g" in said:
            return
    pytest.fail(said)


def test_the_program_in_java_sends_and_receives(cluster: GantryProcess, tmp_path: Path) -> None:
    require("java")
    if not (cluster.folder / "config" / "proxy-cert.pem").exists():
        pytest.skip("missing openssl; apt-get install openssl")
    source = tmp_path / "Shop.java"
    source.write_text(program("java", "{}:{}".format(*cluster.addresses["grpc"])))
    with Program(prepare.sdk_java(), source, tmp_path) as running:
        assert running.until("tea, 250 g"), running.lines
