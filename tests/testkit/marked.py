"""A process with a JVM and Python workers under it, of which nothing may be left: Spark's driver, to be killed.

kill() is SIGKILL to the driver and its JVM at once, which are one process group.  Spark's Python workers make a group
of their own and end by themselves when the JVM is gone; all that was started carries a mark in its environment, and
after close() nobody who does is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

_LEAVE_S = 60.0
_MARK = "GANTRY_TEST_JOB"

# A JVM that lives for a minute: its second compiler and its many threads would only take the processor from Spark's
# Python processes, each of which has to start within ten seconds, and that cannot be changed.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TOO_SLOW = "Python worker failed to connect back"


class Marked:
    """What it says on stdout, line by line; stderr goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self._log = log
        self._log_begin = log.stat().st_size if log.exists() else 0
        self._lines: queue.Queue[str | None] = queue.Queue()
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**(os.environ if environment is None else environment), _MARK: self._mark},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def line(self, seconds: float) -> str | None:
        """The next one; None when it has ended.  AssertionError with its log when it is silent instead."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"nothing said for {seconds} s\n{self.story()}") from None
        if line is None:
            self._lines.put(None)
        return line

    def kill(self) -> None:
        """SIGKILL to driver and JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_LEAVE_S)
        self._reader.join(_LEAVE_S)

    def stand_still(self) -> None:
        """SIGSTOP to all of it, Spark's Python workers too."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Again."""
        self._signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {seconds} s\n{self.story()}") from error

    def was_too_slow(self) -> bool:
        """Whether it ended for no other reason than a machine that is too busy for Spark."""
        return self.process.poll() not in (None, 0) and TOO_SLOW in self.log()

    def log(self) -> str:
        """All that it wrote to stderr."""
        return self._log.read_bytes()[self._log_begin :].decode(errors="replace")

    def story(self) -> str:
        """The end of that, without Java's stacks, which are longer than everything else."""
        return "\n".join(line for line in self.log().splitlines() if not line.startswith("\tat "))[-8000:]

    def close(self, is_failing: bool) -> None:
        """Nothing of it is left; AssertionError when something outlived its JVM, unless a test fails already."""
        self.kill()
        deadline = time.monotonic() + _LEAVE_S
        left = self._left()
        while left and time.monotonic() < deadline:
            threading.Event().wait(0.1)
            left = self._left()
        self._signal(signal.SIGKILL)
        assert not left or is_failing, f"processes {left} outlived their JVM"
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _signal(self, number: int) -> None:
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

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
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)
