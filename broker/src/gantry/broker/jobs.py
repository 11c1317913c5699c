"""What the broker does by the clock: one table of periodic jobs.

A job runs on the loop, so it may take a millisecond and no more: a send that comes meanwhile waits as long.  A
job with more to do is a generator; it is resumed until a millisecond is used up, then others get the loop
before it goes on.  A slice that takes longer is counted, so that /metrics tells before users do.

Every job is essential: one that raises is reported by name, and the process ends.  The next run begins a period
after the last one ended, so jobs never overlap with themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gantry.clock import Clock

SLICE_S = 0.001


class Job(NamedTuple):
    """A name, a period, and what to do; see the module for the two kinds."""

    name: str
    period_s: float
    run: Callable[[], Iterator[object] | None]


class JobCounts:
    """How often a job ran, and how long its slices took."""

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

    def start(self, table: Sequence[Job]) -> None:
        """Begin; the first run of a job is one period away."""
        self.counts = {job.name: JobCounts() for job in table}
        assert len(self.counts) == len(table), "two jobs of one name"
        for job in table:
            self._wait(job)

    def stop(self) -> None:
        """Nothing runs any more; an interrupted generator is closed with its frame."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait(self, job: Job) -> None:
        self._timers[job.name] = asyncio.get_running_loop().call_later(job.period_s, self._begin, job)

    def _begin(self, job: Job) -> None:
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
            if not is_alive:  # the loop logs what was raised
                self._on_failed(job.name)
        took = self._clock.monotonic() - begun
        counts = self.counts[job.name]
        counts.longest_s = max(counts.longest_s, took)
        counts.over += took > SLICE_S
        if job.name not in self._timers:  # stopped by what it did
            return
        if is_finished:
            self._wait(job)
        else:
            self._timers[job.name] = asyncio.get_running_loop().call_soon(self._slice, job, rest)

    def _resume(self, rest: Iterator[object], begun: float) -> bool:
        """Go on until the slice is used up; whether the job is finished."""
        return all(self._clock.monotonic() - begun < SLICE_S for _ in rest)
