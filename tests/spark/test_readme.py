"""The programs of spark/README.md, run as they stand there, and what a newcomer is told when something is missing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.newcomer import README, programs
from testkit.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ADDRESS = "127.0.0.1:9876"
WITHIN_S = 600.0


def run(program: str, folder: Path, nameserver: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as in an activated environment."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-c", program.replace(ADDRESS, nameserver)],
        cwd=folder,
        env={**clean, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_the_six_lines_and_the_stream_show_what_was_sent(nameserver: str, tmp_path: Path) -> None:
    (line,) = re.findall(r"^    gantry (produce .*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    gantry = str(ROOT / ".venv/bin/gantry")
    subprocess.run([gantry, *shlex.split(line), "--namesrv", nameserver], check=True, capture_output=True, timeout=60)
    six, stream, *_ = programs()
    assert len(six.splitlines()) == 6
    done = run(six + stream, tmp_path, nameserver)
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(text in done.stdout for text in ("tea, 250 g", "coffee, 500 g", "Berlin", "properties: map"))
    assert len(re.findall(r"^\|7F\w+ *\|", done.stdout, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("what", "variables"),
    [
        ("JAVA_GATEWAY_EXITED", {"JAVA_HOME": "/nowhere"}),
        ("no name server answers, tried", {}),
    ],
)
def test_what_is_missing_is_said_in_the_words_of_the_readme(
    what: str, variables: dict[str, str], tmp_path: Path
) -> None:
    done = run(programs()[0], tmp_path, "127.0.0.1:1", **variables)
    assert done.returncode != 0 and what in done.stderr, done.stderr[-4000:]
    assert what in README.read_text(encoding="utf-8")
