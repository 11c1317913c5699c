"""A real `gantry standalone` in a process of its own whose broker has a clock that a test moves: days pass in seconds.

    clock = Hands(tmp_path / "clock")
    with GantryProcess(tmp_path / "data", config, command=clock.command(python, tmp_path / "data")):
        clock.nights(4)

Both of the broker's times go on as the machine's do, and what the test adds.  What it adds, and how often the broker
has looked at its clock, stand in a file that both processes map; who adds waits until the broker has looked some
hundred times, so that everything that goes by the clock had its turn.  The name server keeps the machine's time, as
nobody waits half a minute for the registrations that it misses.  The disk keeps it too: what is written after a move
has a time of modification from before, so let no hour come in which the broker deletes (`NIGHT`) once that matters.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gantry.clock import SystemClock
from testkit.sources import ROOT

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NIGHT = 4  # the hour, by the broker's own clock, at which it deletes what is too old, unless it is told otherwise
LOOKS = 300
WITHIN_S = 120.0
_MOVED, _LOOKS, _BYTES = 0, 8, 16


class Hands:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(_BYTES))
        self._shared = _shared(path)

    def command(self, python: str, folder: Path) -> list[str]:
        """What starts the broker, its store in this folder."""
        return ["env", f"PYTHONPATH={ROOT / 'tests'}", python, "-m", "testkit.movedclock", str(self._path), str(folder)]

    @property
    def now_ms(self) -> int:
        """What the broker takes the time to be."""
        return SystemClock().now_ms() + _read(self._shared, _MOVED)

    def add(self, milliseconds: int) -> None:
        """So much time has passed, and the broker has noticed."""
        struct.pack_into("q", self._shared, _MOVED, _read(self._shared, _MOVED) + milliseconds)
        enough, deadline = _read(self._shared, _LOOKS) + LOOKS, time.monotonic() + WITHIN_S
        while _read(self._shared, _LOOKS) < enough:
            assert time.monotonic() < deadline, "the broker does not look at its clock"
            threading.Event().wait(0.05)

    def nights(self, count: int) -> None:
        """To half past the hour at which brokers delete, so many times, and no further."""
        for _ in range(count):
            now_s = self.now_ms / 1000
            then = time.localtime(now_s + (0 if time.localtime(now_s).tm_hour < NIGHT else DAY_MS / 1000))
            night_s = time.mktime((then.tm_year, then.tm_mon, then.tm_mday, NIGHT, 30, 0, 0, 0, -1))
            self.add(round((night_s - now_s) * 1000))


class MovedClock:
    """The broker's; implements `gantry.clock.Clock`."""

    def __init__(self, path: Path) -> None:
        self._machine = SystemClock()
        self._shared = _shared(path)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._machine.now_ms() + self._moved_ms()

    def monotonic(self) -> float:
        """Seconds since some fixed instant."""
        return self._machine.monotonic() + self._moved_ms() / 1000

    def _moved_ms(self) -> int:
        struct.pack_into("q", self._shared, _LOOKS, _read(self._shared, _LOOKS) + 1)
        return _read(self._shared, _MOVED)


def _shared(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _BYTES)


def _read(shared: mmap.mmap, at: int) -> int:
    (found,) = struct.unpack_from("q", shared, at)
    return int(found)


def main() -> int:
    """Serve until asked to stop."""
    # Tests that only move the clock run where a broker's packages are not.
    from gantry.broker.machine import Machine
    from gantry.broker.settings.loading import load
    from gantry.cli.serve import serve
    from gantry.cli.standalone import Standalone

    path, folder = sys.argv[1:]
    config, _ = load(environment=os.environ, flags={"store.root": folder})

    def make(end: Callable[[], None]) -> Standalone:
        return Standalone(config, end, Machine(clock=MovedClock(Path(path))))

    return serve(make, Standalone.ready, lambda server: server.broker.failure if server.broker else None)


if __name__ == "__main__":
    sys.exit(main())
