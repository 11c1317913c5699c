"""How long anyone who comes now would wait for the event loop.

A job of the loop's table asks every PERIOD_S how late it runs.  Lateness is what a request that came at that moment
waited before anybody looked at it: the rest of somebody's turn, or of a slice of work.

A turn of a second would be one late run among twenty in time, and a quantile over runs would hide it.  So the runs that
could not happen meanwhile are counted too, each with what was left of the turn when its time came: the histogram is one
over moments and not over runs, and its p99 is what 99 of 100 requests find that come at moments of their own choosing.

The loop's timers count in milliseconds, so up to 1 ms of it is rounding.  Costs about 10 us per run.
"""

from __future__ import annotations

from gantry.broker.jobs import next_run_s
from gantry.clock import Clock

PERIOD_S = 0.05  # with the store's tick: an idle process is not woken for this alone
LAG_BOUNDS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_MISSED_MAX = 1_200  # a minute; a process that was stopped for longer tells it by one sample in the last bucket


class LoopLag:
    """Counts moments by how late the loop was; belongs to one loop."""

    def __init__(self, clock: Clock) -> None:
        self.moments = [0] * (len(LAG_BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._clock = clock
        self._due: float | None = None

    def sample(self) -> None:
        """The job; it is late by what has passed since the moment for which its last run left it to the timers."""
        now = self._clock.monotonic()
        if self._due is not None:
            late_s = max(0.0, now - self._due)
            self._count(late_s)
            for _ in range(min(int(late_s / PERIOD_S), _MISSED_MAX)):
                late_s -= PERIOD_S
                self._count(late_s)
        self._due = next_run_s(now, PERIOD_S)

    def _count(self, late_s: float) -> None:
        self.sum_s += late_s
        for number, bound in enumerate(LAG_BOUNDS_S):
            if late_s <= bound:
                self.moments[number] += 1
                return
        self.moments[-1] += 1
