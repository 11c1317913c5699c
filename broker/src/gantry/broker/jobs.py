"""The periodic jobs of a broker.

A job runs on the loop, so it may take at most a millisecond: a send that arrives meanwhile waits as long.  A job with
more to do is a generator.  It is resumed until a millisecond is used up, then other tasks run before it continues.
Slices that take longer are counted, so that /metrics shows them.

Every job is essential: when one raises, its name is reported and the process ends.

A job runs when the clock reaches a multiple of its period, so that jobs wake the process together and an idle broker
sleeps otherwise.  A multiple that is less than a quarter of a period away is skipped, and a running job is not started
again.  So a job does not run twice in a row or overlap with itself.

A job that knows when it will have work returns how long it rests.  It sleeps until then; a long rest is shortened to a
moment at which other jobs wake too.  `hurry` ends the rest when there is new work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gantry.clock import Clock

SLICE_S = 0.001
# uvloop's timers count whole milliseconds from the beginning of a turn; without this half of them fire 1 ms early.
_ROUNDING_S = 0.0005
# Short periods of jobs that always run are multiples or parts of this, so that a rest ends when they run.
TOGETHER_S = 0.05


class Job(NamedTuple):
    """A job's name, period and function; rest_s: returns how many seconds it may sleep."""

    name: str
    period_s: float
    run: Callable[[], Iterator[object] | None]
    rest_s: Callable[[], float] | None = None  # 0: there may be something to do at once


def next_run_s(now: float, period_s: float, rest_s: float = 0.0) -> float:
    """Return when a job that ended at `now` runs again, in seconds of the monotonic clock."""
    if rest_s > 0:
        then = now + rest_s
        return then - then % TOGETHER_S if rest_s >= 2 * TOGETHER_S else then
    wait = period_s - now % period_s
    return now + (wait if 4 * wait >= period_s else wait + period_s)


class JobCounts:
    """How often a job ran, its longest slice in seconds, and the number of slices over `SLICE_S`."""

    __slots__ = ("longest_s", "over", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.over = 0
        self.longest_s = 0.0


class Jobs:
    """Runs a table of jobs until stopped."""

    def __init__(self, clock: Clock, on_failed: Callable[[str], None]) -> None:
        self.counts: dict[str, JobCounts] = {}
        self._clock = clock
        self._on_failed = on_failed
        self._timers: dict[str, asyncio.Handle] = {}
        self._resting: dict[str, Job] = {}

    def start(self, table: Sequence[Job]) -> None:
        """Start the jobs; the first run of each is at most 1.25 periods away."""
        self.counts = {job.name: JobCounts() for job in table}
        assert len(self.counts) == len(table), "two jobs of one name"
        for job in table:
            self._wait(job)

    def stop(self) -> None:
        """Stop all jobs; an interrupted generator is closed."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._resting.clear()

    def hurry(self, name: str) -> None:
        """Note that a job has work: a resting job runs within its period."""
        job = self._resting.pop(name, None)
        if job is not None:
            self._timers[name].cancel()
            self._wait(job)

    def _wait(self, job: Job) -> None:
        now = self._clock.monotonic()
        rest_s = job.rest_s() if job.rest_s is not None else 0.0
        if rest_s > 0:
            self._resting[job.name] = job
        wait = next_run_s(now, job.period_s, rest_s) - now + _ROUNDING_S
        self._timers[job.name] = asyncio.get_running_loop().call_later(wait, self._begin, job)

    def _begin(self, job: Job) -> None:
        self._resting.pop(job.name, None)
        self.counts[job.name].runs += 1
        self._slice(job, None)

    def _slice(self, job: Job, rest: Iterator[object] | None) -> None:
        begun = self._clock.monotonic()
        is_alive = False
        try:
            rest = job.run() if rest is None else rest
            is_finished = rest is None or self._resume(rest, begun)
            is_alive = True
        finally:
            if not is_alive:  # the loop logs the exception
                self._on_failed(job.name)
        took = self._clock.monotonic() - begun
        counts = self.counts[job.name]
        counts.longest_s = max(counts.longest_s, took)
        counts.over += took > SLICE_S
        if job.name not in self._timers:  # the job called stop()
            return
        if is_finished:
            self._wait(job)
        else:
            self._timers[job.name] = asyncio.get_running_loop().call_soon(self._slice, job, rest)

    def _resume(self, rest: Iterator[object], begun: float) -> bool:
        """Continue until the slice is used up. Return whether the job is finished."""
        return all(self._clock.monotonic() - begun < SLICE_S for _ in rest)
