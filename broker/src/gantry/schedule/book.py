"""State of delivery: what is pending in lines and timer, what is under way, and the progress that follows from both.

A *flight* is a batch of deliveries that was appended.  While it is not confirmed it is under way; after that it counts
as progress.  Progress has two forms (`progress.DeliveryProgress`): for a line its next offset; for the timer the due
time up to which everything is delivered.  The second cannot express everything (half a slot is delivered; the clock was
set back).  Then `log` in the document stays where the first such flight begins, and a start reads from there what was
delivered.

This module uses no clock, no disk and no messages: times and marks are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from gantry.schedule.cancels import Cancels
from gantry.schedule.lines import NEVER, Line
from gantry.schedule.places import DelayedEntry
from gantry.schedule.progress import DeliveryProgress, Eras
from gantry.schedule.timer import Timer

UNDER_WAY_MAX = 1024
"""Batches that are not confirmed; nothing is delivered or copied beyond."""


class Flight(NamedTuple):
    """A batch of deliveries that was appended to the log."""

    start: int  # of its records in the log
    end: int
    line: Line | None  # None: it came from the timer
    offset: int  # the line's next one; the timer's lowest
    first_ms: int = 0  # of the timer's, nothing was due before
    last_ms: int = 0  # and nothing after


class DelayBook:
    """All pending deliveries and those under way.  Loop thread only."""

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}  # by level
        self.timer = Timer()
        self.cancels = Cancels()
        self.eras = Eras()
        self.timer_end = 0  # the timer topic's queue is known up to here
        self.first_offset = 0  # nothing below is pending or under way
        # (copy, original) log offsets of messages that were copied and whose original is still in the log.
        self.moved: deque[tuple[int, int]] = deque()
        # By log offset of a copy: when its original was stored, where the clock was set forwards since.  Ascending.
        self.stored_ms: dict[int, int] = {}
        # Found pending at a start: leases of popped messages and their acknowledgements, for `gantry.pop`.
        self.leases: list[DelayedEntry] = []
        self._flights: deque[Flight] = deque()  # not confirmed
        self._landed: deque[Flight] = deque()  # confirmed, and not expressed by the eras

    @property
    def under_way(self) -> int:
        """Batches that are not confirmed."""
        return len(self._flights)

    def came(self, offset: int, due_ms: int) -> None:
        """Add a timer message at the end of its queue; call `advance` before."""
        self.eras.came(offset, due_ms)
        self.timer.add(offset, due_ms)
        self.timer_end = offset + 1

    def came_all(self, offsets: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Add timer messages at the end of their queue; call `advance` before."""
        if min(dues_ms) < self.eras.newest_ms:
            for offset, due_ms in zip(offsets, dues_ms, strict=True):
                self.came(offset, due_ms)
            return
        self.timer.add_all(offsets, dues_ms)
        self.timer_end = offsets[-1] + 1

    def advance(self, now_ms: int) -> int:
        """Return the time in ms before which all due timer messages are delivered and confirmed."""
        position_ms = min(now_ms, self.timer.first_due_ms())
        if self._flights:
            flying = min([flight.first_ms for flight in self._flights if flight.line is None], default=NEVER)
            position_ms = min(position_ms, flying)
        self.eras.advance(position_ms)
        return position_ms

    def fly(self, flight: Flight, confirmed: int) -> None:
        """Record a batch of deliveries that was appended; the log is confirmed up to `confirmed`."""
        self._flights.append(flight)
        self.land(confirmed)

    def note_earlier(self, log: int, last_ms: int) -> None:
        """Record timer deliveries of an earlier process, due until `last_ms`, that its document does not contain; the
        log from `log` on tells which.
        """
        self._landed.append(Flight(log, log, None, 0, 0, last_ms))

    def land(self, confirmed: int) -> None:
        """Count flights that end at or below the confirmed mark as progress."""
        while self._flights and self._flights[0].end <= confirmed:
            flight = self._flights.popleft()
            if flight.line is not None:
                flight.line.kept = flight.offset
            else:
                self._landed.append(flight)

    def progress(self, now_ms: int, dispatched: int, log_start: int) -> DeliveryProgress:
        """Return the progress to be saved; the log is dispatched up to `dispatched`, and never cut below it."""
        self.advance(now_ms)
        while self._landed and self._landed[0].last_ms < self.eras.least_ms:
            self._landed.popleft()
        while self.moved and self.moved[0][1] < log_start:
            self.moved.popleft()
        while self.stored_ms and (first := next(iter(self.stored_ms))) < log_start:
            del self.stored_ms[first]
        starts = [dispatched, *[some[0].start for some in (self._flights, self._landed) if some]]
        if self.moved:
            starts.append(self.moved[0][0])
        return DeliveryProgress(
            levels={level: line.kept for level, line in self.lines.items()},
            end=self.timer_end,
            first=self.first_offset,
            done=self.eras.shown(),
            log=min(starts),
            has_timer=True,
        )

    def look_for_first(self) -> None:
        """Compute `first_offset` again.  It only rises, so an old value is safe; computing it takes milliseconds."""
        flying = [flight.offset for flight in self._flights if flight.line is None]
        pending = self.timer.first_offset()
        self.first_offset = min([*flying, *([] if pending is None else [pending])], default=self.timer_end)
