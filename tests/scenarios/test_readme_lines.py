"""The lines `gantry ...` of README.md and broker/docs/local.md, typed as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import _environment
from testkit.sources import ROOT
from testkit.typed import Typed, read

SEND = "Send and receive"
FAILOVER = {"README.md": "Failover, tried on one machine", "broker/docs/local.md": "Failover in five commands"}
LINES = [one for one in read("README.md") if one.kind == "gantry" and not one.is_marked]
WITHIN_S = 300.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that stands for the clone: what is written goes there, the programs are ours."""
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return {**_environment({}), "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1", **more}


class Typing:
    """A line that was typed into a shell; ended like a person ends it, by Ctrl-C."""

    def __init__(self, line: str, folder: Path, **variables: str) -> None:
        self.line = line
        self.said = ""
        with (folder / "stderr").open("a") as stderr:
            self._popen = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=folder,
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self.said += line

    def until(self, pattern: str) -> re.Match[str]:
        """Until it has printed this."""
        end_s, pause = time.monotonic() + WITHIN_S, threading.Event()
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < end_s and self._popen.poll() is None, f"{self.line}: {self.said}"
            pause.wait(0.05)
        return found

    def ended(self, number: int = 0) -> str:
        """What it said by its end, which comes by itself or by this signal, with exit code 0."""
        if number:
            self._popen.send_signal(number)
        assert self._popen.wait(WITHIN_S) == 0, f"{self.line}: {self.said}"
        self._reader.join(HANG_S)
        return self.said

    def kill(self) -> None:
        """Whatever happened."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self._reader.join(HANG_S)
        assert self._popen.stdout is not None
        self._popen.stdout.close()


@pytest.fixture
def typing(clone: Path) -> Iterator[list[Typing]]:
    """Everything that was typed; nothing of it is left."""
    typed: list[Typing] = []
    yield typed
    for one in typed:
        one.kill()


def test_each_line_is_typed_here_or_on_kubernetes() -> None:
    assert {one.heading for one in LINES} == {SEND, FAILOVER["README.md"]}


def test_the_lines_of_send_and_receive_do_what_they_say(clone: Path, typing: list[Typing]) -> None:
    standalone, *others = [one.text for one in LINES if one.heading == SEND]
    typing.append(Typing(standalone, clone))
    where = typing[0].until(r"ready nameserver=(\S+)")[1]
    for line in others:
        typing.append(Typing(line, clone, NAMESRV_ADDR=where))
        if " consume " in line:
            typing[-1].until("tea, 250 g")
            typing[-1].ended(signal.SIGINT)
        else:
            assert typing[-1].ended().strip()
    assert '"orders"' in typing[-1].said
    typing[0].ended(signal.SIGINT)


def _failover(document: str) -> list[Typed]:
    return [one for one in read(document) if one.heading == FAILOVER[document] and one.kind == "gantry"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("document", FAILOVER)
def test_the_lines_of_a_failover_do_what_they_say(document: str, clone: Path, typing: list[Typing]) -> None:
    up, *others = [one.text for one in _failover(document)]
    assert others[-1].startswith("gantry local down")
    typing.append(Typing(up, clone))
    where = typing[0].until(r"ready nameserver=(\S+)")[1]
    try:
        for line in others[:-1]:
            typing.append(Typing(line.replace("HOST:PORT", where), clone))
            assert typing[-1].ended().strip()
        typing[0].until(r"broker-a epoch [2-9]\d*: broker-a-\d leads")
    finally:
        typing.append(Typing(others[-1], clone))
        typing[-1].ended()
    assert "down" in typing[-1].said
