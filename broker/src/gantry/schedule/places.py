"""Places of delayed records: where they stand in the log and in their queue, read from queue entries.

The two topics' queues are the index of everything that is pending (`store.duetimes`).  Entries that RocketMQ wrote
into the timer topic's queue carry no time; then the record says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import delays
from gantry.model import names
from gantry.schedule.lines import NEVER, Line
from gantry.store import duetimes

if TYPE_CHECKING:
    from gantry.store.reading import Reader


RUN_BYTES_MAX = 1 << 20


class DelayedEntry(NamedTuple):
    """A delayed record: where it stands in the log and in its queue, and when it is due."""

    log_offset: int
    size: int
    offset: int
    due_ms: int
    is_cancel: bool = False
    is_lease: bool = False  # of popped messages, or an acknowledgement of some
    is_retime: bool = False  # it replaces another one


class DelayedEntries:
    """Reads entries; loop thread only."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def of_timer(self, offset: int) -> DelayedEntry | None:
        """The timer record at a queue offset; None when it is no longer there."""
        for log_offset, size, code in self._reader.places(names.TIMER_TOPIC, 0, offset, 1):
            return self.place(log_offset, size, offset, code)
        return None

    def of_timer_all(self, offsets: Sequence[int]) -> list[DelayedEntry | None]:
        """Like `of_timer`, for several offsets; neighbouring ones, the usual case, with one look-up in the queue."""
        found: list[DelayedEntry | None] = []
        while len(found) < len(offsets):
            at = len(found)
            count = 1
            while at + count < len(offsets) and offsets[at + count] == offsets[at] + count:
                count += 1
            entries = self._reader.places(names.TIMER_TOPIC, 0, offsets[at], count)
            found += [self.place(*one[:2], offset, one[2]) for offset, one in enumerate(entries, offsets[at])]
            if not entries:
                found.append(None)
        return found

    def ready_of_timer(self, slot_ms: int, offsets: Sequence[int], bytes_max: int) -> list[delays.Place]:
        """The entries of timer records from the first of `offsets` on that need no closer look; see `delays.ready`."""
        found = self._reader.places_at(names.TIMER_TOPIC, 0, offsets)
        return found[: self._reader.ready(found, slot_ms, bytes_max)]

    def ready_of_line(self, line: Line, count_max: int, now_ms: int, bytes_max: int) -> list[delays.Place]:
        """The same for what is next in a line."""
        found = self._reader.places(names.SCHEDULE_TOPIC, line.queue_id, line.next, count_max)
        return found[: self._reader.ready(found, now_ms, bytes_max)]

    def place(self, log_offset: int, size: int, offset: int, code: int) -> DelayedEntry | None:
        """The place that an entry of the timer topic names."""
        if not self._reader.is_place(log_offset, size):
            return None
        if not duetimes.is_time(code):
            record = self._reader.record((log_offset, size, 0))
            if record is None:
                return None
            code = delays.timer_code(record.properties, record.store_ms)
        is_cancel, is_lease = code & duetimes.CANCEL_BIT != 0, code & duetimes.LEASE_BIT != 0
        is_retime = code & duetimes.RETIME_BIT != 0
        return DelayedEntry(log_offset, size, offset, duetimes.due_ms(code), is_cancel, is_lease, is_retime)

    def of_line(self, line: Line, count_max: int, behind: int = 0) -> list[DelayedEntry]:
        """What is next in a line, or so many behind that; a place of size 0 stands for what is no longer there, due at
        once.
        """
        found = self._reader.places(names.SCHEDULE_TOPIC, line.queue_id, line.next + behind, count_max)
        return [
            DelayedEntry(log_offset, size, offset, due_ms)
            if self._reader.is_place(log_offset, size)
            else DelayedEntry(0, 0, offset, 0)
            for offset, (log_offset, size, due_ms) in enumerate(found, line.next + behind)
        ]

    def look_at_head(self, line: Line) -> None:
        """Set `head_ms` of the line: when its first message is due."""
        line.head_ms = NEVER
        for place in self.of_line(line, 1):
            line.head_ms = place.due_ms


def fitting(places: Sequence[DelayedEntry]) -> list[DelayedEntry]:
    """Return the first of these places that fit into one run."""
    total = 0
    for number, place in enumerate(places):
        total += place.size
        if number and total > RUN_BYTES_MAX:
            return list(places[:number])
    return list(places)
