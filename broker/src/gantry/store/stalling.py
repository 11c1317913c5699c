"""How long the disk has made no progress with what was asked of it.

A disk that fails returns an error, and the store ends.  A disk that hangs returns nothing: fdatasync does not end, and
nothing else in the process notices.  So two things are looked at, a few times a second:

    the log      a sync was asked for, and the flushed mark has not moved since
    the jobs     the housekeeper has something to do, and no job of it has ended since

Any progress ends a stall: a disk that takes 3 s for each sync is slow and does not hang.  The check adds no work per
message, and a stall is found late by one check at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.clock import Clock
    from gantry.store.background import Worker
    from gantry.store.flushing import LogFlush
    from gantry.store.watermarks import Watermark


class Stalling:
    """State of one store; loop thread only."""

    def __init__(self, flush: LogFlush, flushed: Watermark, housekeeper: Worker, clock: Clock) -> None:
        self._flush = flush
        self._flushed = flushed
        self._housekeeper = housekeeper
        self._clock = clock
        self._log, self._jobs = _Progress(), _Progress()

    def look(self) -> tuple[float, float]:
        """Return for how many seconds the log's sync, and the housekeeper, have made no progress; 0: nothing is due."""
        now_s = self._clock.monotonic()
        flushed, worker = self._flushed.offset, self._housekeeper
        return (
            self._log.look(self._flush.asked > flushed, flushed, now_s),
            self._jobs.look(worker.is_busy, worker.ended, now_s),
        )


class _Progress:
    """One thing that should go on while something is due."""

    def __init__(self) -> None:
        self._at = -1
        self._since_s: float | None = None

    def look(self, is_due: bool, at: int, now_s: float) -> float:
        """Return for how many seconds something has been due and `at` has not changed."""
        if not is_due:
            self._since_s = None
        elif self._since_s is None or at != self._at:
            self._at, self._since_s = at, now_s
        return 0.0 if self._since_s is None else now_s - self._since_s
