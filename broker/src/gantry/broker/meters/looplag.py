"""How long a request that arrives now would wait for the event loop.

A job measures every PERIOD_S how late it runs.  A request that arrived when the job was due waited as long, for the
rest of another task's turn.

A turn of a second would be one late run among twenty punctual ones, and a quantile over runs would hide it.  So the
runs that were missed meanwhile are counted too, each with the time that was left of the turn when it was due.  The
histogram is therefore one over moments, and its p99 is valid for requests that arrive at random moments.

The loop's timers count in milliseconds, so up to 1 ms of it is rounding.  Costs about 10 us per run.
"""

from __future__ import annotations

from gantry.broker.jobs import next_run_s
from gantry.clock import Clock

PERIOD_S = 0.05  # the period of the store's tick, so that an idle process is not woken for this alone
LAG_BOUNDS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_MISSED_MAX = 1_200  # a minute; a longer pause of the process adds no more samples


class LoopLag:
    """Counts moments by the delay of the loop; belongs to one loop."""

    def __init__(self, clock: Clock) -> None:
        self.moments = [0] * (len(LAG_BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._clock = clock
        self._due: float | None = None

    def sample(self) -> None:
        """Measure the delay since this run was due; called by the job."""
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
