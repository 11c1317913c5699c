"""Tells the parts of a member when the register has to be read, and which master it names."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.clock import Clock

_AT_ONCE_S, _SOON_S = 0.05, 0.25
_KEEN_S, _EAGER_S = 2.0, 20.0  # for so long after the last sign of a new master


class RegisterNews:
    """Loop thread only.

    master: the replication address of the master that the register names; empty while no master is known.
    """

    def __init__(self, clock: Clock) -> None:
        self.master = ""
        self._clock = clock
        self._is_due = asyncio.Event()
        self._expected_s = clock.monotonic() - _KEEN_S

    def hurry(self) -> None:
        """Make the watcher read the register now."""
        self._is_due.set()

    def expect(self) -> None:
        """Make the watcher read the register often for a while, because a new master is likely."""
        self._expected_s = self._clock.monotonic()
        self._is_due.set()

    def reading(self) -> None:
        """Note that the register is about to be read: only later calls of `hurry` cause another reading."""
        self._is_due.clear()

    def pause_s(self, period_s: float) -> float:
        """Return for how many seconds a member without a master waits for its next reading; at most `period_s`."""
        passed_s = self._clock.monotonic() - self._expected_s
        if passed_s >= _EAGER_S:
            return period_s
        return min(_AT_ONCE_S if passed_s < _KEEN_S else _SOON_S, period_s)

    async def wait(self, pause_s: float) -> None:
        """Wait for the pause, or until the register has to be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_due.wait()
