"""A job in a process of its own, as `python -m` starts it: its driver, its JVM, and what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from testkit.marked import JVM, Marked

# A JVM and half a dozen Python processes start; a busy machine takes minutes for that.
START_S = 300.0
_STARTS_MAX = 6
_CONF = (
    "spark.driver.memory=1g",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.host=127.0.0.1",
    f"spark.driver.extraJavaOptions={JVM}",
)


class SparkJob:
    """`with SparkJob("idempotent", [...], log) as job:`"""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        confs = [part for each in _CONF for part in ("--conf", each)]
        command = [sys.executable, "-m", f"pyspark_gantrymq.jobs.{name}", "--master", "local[2,3]", *confs, *arguments]
        self._process = Marked(command, log)
        self.process = self._process.process

    def next_line(self, seconds: float = START_S) -> dict[str, Any]:
        """What it says next in JSON; AssertionError with its log when it ends or is silent instead."""
        while (line := self._process.line(seconds)) is not None:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        code = self.process.wait(START_S)
        raise AssertionError(f"no line; exit code {code}\n{self.story()}")

    def has_begun(self) -> bool:
        """Wait for its first line; False when it ended because this machine is too busy for Spark."""
        try:
            self.next_line()
        except AssertionError:
            if not self._process.was_too_slow():
                raise
            return False
        return True

    def was_too_slow(self) -> bool:
        """Whether it ended for no other reason than a busy machine."""
        return self._process.was_too_slow()

    def kill(self) -> None:
        """SIGKILL to driver and JVM."""
        self._process.kill()

    def wait(self, seconds: float = START_S) -> int:
        """Its exit code."""
        return self._process.wait(seconds)

    def log(self) -> str:
        """All that it wrote to stderr."""
        return self._process.log()

    def story(self) -> str:
        """The end of that, without Java's stacks."""
        return self._process.story()

    def __enter__(self) -> SparkJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close(is_failing=error is not None)


def work_off(name: str, arguments: Sequence[str], log: Path) -> None:
    """Run a job to its end, with exit code 0."""
    for _ in range(_STARTS_MAX):
        with SparkJob(name, arguments, log) as job:
            if job.wait() == 0:
                return
            assert job.was_too_slow(), job.story()
    raise AssertionError(f"{_STARTS_MAX} times too slow a machine")
