"""A Spark driver in a process of its own, to be killed: files of lines, one a batch, into a topic, transactionally.

    with Driver(nameserver, topic, folder) as driver:
        driver.begun()
        driver.kill()

FOLDER/in has the files, FOLDER/checkpoint what Spark remembers.  The process says `started`, and `finished` when all
files are written; an error is its last words, and its log stands in FOLDER.  A life that ends because the machine is
too busy for Spark is nobody's fault: `run_to_end` begins another one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path

from testkit.marked import Marked
from testkit.sources import ROOT

# A JVM and half a dozen Python processes start; a busy machine takes minutes for that.
START_S, END_S = 300.0, 600.0
_STARTS_MAX = 6


class Driver:
    """One life of it."""

    def __init__(self, nameserver: str, topic: str, folder: Path, **options: str) -> None:
        local = tempfile.mkdtemp(prefix="local", dir=folder)
        given = [f"{name}={text}" for name, text in options.items()]
        command = [sys.executable, "-m", "testkit.sinkdriver", nameserver, topic, str(folder), local, *given]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        self._process = Marked(command, folder / f"driver-{uuid.uuid4().hex[:6]}.log", environment)

    def begun(self) -> None:
        """Wait until the query runs, or is over."""
        line = self._process.line(START_S)
        assert line == "started" or self._process.was_too_slow(), self.log()

    def finished(self) -> bool:
        """Wait for its end; whether it wrote everything."""
        lines = []
        while (line := self._process.line(END_S)) is not None:
            lines.append(line)
        self._process.wait(END_S)
        return "finished" in lines

    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.process.poll() is not None

    def was_too_slow(self) -> bool:
        """Whether it ended for no other reason than a busy machine."""
        return self._process.was_too_slow()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def stand_still(self) -> None:
        """As a machine that is swapped out, or a partitioned one."""
        self._process.stand_still()

    def go_on(self) -> None:
        """Again."""
        self._process.go_on()

    def log(self) -> str:
        """What it wrote to stderr, its end."""
        return self._process.story()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._process.close(is_failing=error is not None)


def run_to_end(nameserver: str, topic: str, folder: Path, **options: str) -> None:
    """Lives until one has written everything; AssertionError when one fails for a reason of its own."""
    for _ in range(_STARTS_MAX):
        with Driver(nameserver, topic, folder, **options) as driver:
            if driver.finished():
                return
            assert driver.was_too_slow(), driver.log()
    raise AssertionError(f"{_STARTS_MAX} times too slow a machine")


def files(folder: Path, count: int, lines: int, begin: int = 0) -> list[str]:
    """Write so many files for the driver; all their lines."""
    (folder / "in").mkdir(exist_ok=True)
    found = []
    for number in range(begin, begin + count):
        here = [f"{number}-{line}" for line in range(lines)]
        unfinished = folder / f"{number:04d}.tmp"
        unfinished.write_text("\n".join(here) + "\n")
        unfinished.rename(folder / "in" / f"{number:04d}")
        found += here
    return found


def main() -> None:
    """Run until everything that was there is written."""
    from testkit.sparksession import start

    nameserver, topic, folder, local, *given = sys.argv[1:]
    spark = start(Path(local))
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(f"{folder}/in")
    options = {
        "gantrymq.namesrv": nameserver,
        "topic": topic,
        "mode": "transactional",
        "checkpointLocation": f"{folder}/checkpoint",
    }
    options |= dict(one.partition("=")[::2] for one in given)
    rows = lines.repartition(2).selectExpr("cast(value as binary) as body")
    query = rows.writeStream.format("gantrymq").options(**options).trigger(availableNow=True).start()
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
