"""The wall clock of a real process, set forwards or back while it runs, or before it starts (shim/clockshim.c).

    clock = WrongClock(tmp_path / "clock")
    with GantryProcess(folder, environment=clock.environment):
        clock.set_ahead(-HOUR_MS)

Its monotonic clocks stay the machine's, so this is a clock that is set; with `movedclock` time passes.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from gantry.clock import SystemClock
from testkit.shims import build

_BYTES = 8


class WrongClock:
    """The clock of every process that has this environment; implements `gantry.clock.Clock` for those in tests."""

    def __init__(self, path: Path, ahead_ms: int = 0) -> None:
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _BYTES)
        self._machine = SystemClock()
        self.monotonic = self._machine.monotonic
        self.environment = {"LD_PRELOAD": str(build("clockshim")), "CLOCKSHIM_FILE": str(path)}
        self.set_ahead(ahead_ms)

    def set_ahead(self, milliseconds: int) -> None:
        """Set it so far ahead of the machine's clock; behind it where negative."""
        self.ahead_ms = milliseconds
        struct.pack_into("q", self._shared, 0, milliseconds * 1_000_000)  # "=q" would store byte by byte

    def now_ms(self) -> int:
        """Return its time in ms since the epoch."""
        return self._machine.now_ms() + self.ahead_ms
