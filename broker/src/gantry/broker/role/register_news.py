"""What the parts of one life tell each other about the register: that it should be read, and which master it named."""

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
        """Have the register read now."""
        self._is_due.set()

    def expect(self) -> None:
        """Have the register read often for a while: a new master is likely."""
        self._expected_s = self._clock.monotonic()
        self._is_due.set()

    def reading(self) -> None:
        """The register is about to be read: only later calls of `hurry` ask for another reading."""
        self._is_due.clear()

    def pause_s(self, period_s: float) -> float:
        """How long a member without a master waits for its next reading, in seconds; at most `period_s`."""
        passed_s = self._clock.monotonic() - self._expected_s
        if passed_s >= _EAGER_S:
            return period_s
        return min(_AT_ONCE_S if passed_s < _KEEN_S else _SOON_S, period_s)

    async def wait(self, pause_s: float) -> None:
        """Return after the pause, or as soon as the register should be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_due.wait()
