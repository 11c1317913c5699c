"""A job in a process of its own, as `python -m` starts it: its driver, its JVM, and what it says.

kill() is SIGKILL to the driver and its JVM at once, which are one process group.  Spark's Python workers make a group
of their own and end by themselves when the JVM is gone; all that a job started carries a mark in its environment, and
at the end of the `with` nobody who does may be left.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

# A JVM and half a dozen Python processes start; a busy machine takes minutes for that.
START_S = 300.0
_LEAVE_S = 60.0
_MARK = "GANTRY_TEST_JOB"
_STARTS_MAX = 6
# Spark gives each of its Python processes ten seconds to start, which cannot be changed; a busy machine needs more.
# The query ends with this, and whoever runs it starts it again.
_TOO_SLOW = "Python worker failed to connect back"
_CONF = ("spark.driver.memory=1g", "spark.sql.shuffle.partitions=2", "spark.driver.host=127.0.0.1")


class SparkJob:
    """`with SparkJob("idempotent", [...], log) as job:`"""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._log = log
        self._log_begin = log.stat().st_size if log.exists() else 0
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        confs = [part for each in _CONF for part in ("--conf", each)]
        command = [sys.executable, "-m", f"pyspark_gantrymq.jobs.{name}", "--master", "local[2,3]", *confs, *arguments]
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, _MARK: self._mark},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def next_line(self, seconds: float = START_S) -> dict[str, Any]:
        """What it says next; AssertionError with its log when it ends or is silent instead."""
        with contextlib.suppress(queue.Empty):
            line = self._lines.get(timeout=seconds)
            if line is not None:
                return line
        raise AssertionError(f"no line; exit code {self.process.poll()}\n{self.log()[-6000:]}")

    def has_begun(self) -> bool:
        """Wait for its first line; False when it ended because this machine is too busy for Spark."""
        try:
            self.next_line()
        except AssertionError:
            if not self.was_too_slow():
                raise
            return False
        return True

    def was_too_slow(self) -> bool:
        """Whether it ended for no other reason than a busy machine."""
        return self.process.poll() not in (None, 0) and _TOO_SLOW in self.log()

    def kill(self) -> None:
        """SIGKILL to driver and JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_LEAVE_S)
        self._reader.join(_LEAVE_S)

    def wait(self, seconds: float = START_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {seconds} s\n{self.log()[-6000:]}") from error

    def log(self) -> str:
        """All that it wrote to stderr."""
        return self._log.read_bytes()[self._log_begin :].decode(errors="replace")

    def __enter__(self) -> SparkJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        deadline = time.monotonic() + _LEAVE_S
        left = self._left()
        while left and time.monotonic() < deadline:
            threading.Event().wait(0.1)
            left = self._left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left or error is not None, f"processes {left} outlived their JVM"
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _left(self) -> list[int]:
        wanted = f"{_MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self._lines.put(json.loads(line))
        self._lines.put(None)


def work_off(name: str, arguments: Sequence[str], log: Path) -> None:
    """Run a job to its end, with exit code 0."""
    for _ in range(_STARTS_MAX):
        with SparkJob(name, arguments, log) as job:
            if job.wait() == 0:
                return
            assert job.was_too_slow(), job.log()[-6000:]
    raise AssertionError(f"{_STARTS_MAX} times too slow a machine")
