"""The time, as a seam: code that asks a `Clock` runs unchanged in a simulation.

Two times exist.  `now_ms` is the wall clock in milliseconds since the epoch: it goes into records and
may jump.  `monotonic` is in seconds and never goes back: every time-out and period is measured with it.
"""

from __future__ import annotations

import time
from typing import Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock; may jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed instant; never goes back."""
        ...


class SystemClock:
    """The clock of a real process; simulations implement `Clock` with virtual time."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since the machine's boot, suspension included: a serving lease must not outlive it."""
        return time.clock_gettime(_SINCE_BOOT)
