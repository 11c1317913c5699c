"""Records of the levels' lines that are no longer in memory: read by the cold reader before they are due.

A level's line may be hours behind the log's end.  Its queue entries and some records at its head are asked for ten
seconds ahead, and those that are not there yet are not delivered: the event loop never waits for a page of them, and a
late disk makes a level late.  What is behind a record that is in memory is in memory too, because a line is in the
order of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gantry.model import names
from gantry.schedule.lines import Line
from gantry.schedule.places import DelayedEntries
from gantry.store.coldrange import ColdRange

if TYPE_CHECKING:
    from gantry.store.store import Store

_AT_ONCE = 256
_AHEAD_MS = 10_000


class LineReads:
    """Asks for records of lines, and knows which have come.  Loop thread only."""

    def __init__(self, store: Store, places: DelayedEntries, came: Callable[[], object]) -> None:
        """came: called when records that were asked for are there."""
        self._store = store
        self._places = places
        self._came_to = came
        self._there: dict[int, int] = {}  # by level: records before this queue offset have been read
        self._entries_at: dict[int, int] = {}  # by level: the queue offset from which on entries were asked for last
        self._coming: set[int] = set()  # levels of which some are being read

    def ready(self, line: Line, now_ms: int, count_max: int) -> int:
        """Return how many messages at a line's head can be read now, at most `count_max`; ask for the next ones."""
        if line.head_ms > now_ms + _AHEAD_MS:
            return count_max
        there = self._there.get(line.level, 0) - line.next
        if there <= count_max:
            behind = max(there, 0)
            at = line.next + behind
            entries = self._cold_entries(line, at)
            if entries is not None:
                self._ask_for_entries(line, entries)
            elif not self._is_cold(line, behind):
                return count_max
            else:
                self._ask(line, behind, now_ms)
            there = self._there.get(line.level, 0) - line.next
        return min(max(there, 0), count_max)

    def _cold_entries(self, line: Line, at: int) -> ColdRange | None:
        """Return what to ask for before these entries are read.

        Once: where memory is so short that they are gone again, or nobody can tell, they are read all the same.
        """
        if line.level not in self._coming and self._entries_at.get(line.level) == at:
            return None
        found = self._store.reader.cold_entries(names.SCHEDULE_TOPIC, line.queue_id, at, _AT_ONCE)
        if found is not None:
            self._entries_at[line.level] = at
        return found

    def _is_cold(self, line: Line, behind: int) -> bool:
        found = self._places.of_line(line, 1, behind)
        place = found[0] if found else None
        return place is not None and place.size > 0 and self._store.reader.is_cold([(place.log_offset, place.size)])

    def _ask_for_entries(self, line: Line, entries: ColdRange) -> None:
        if line.level not in self._coming:
            self._coming.add(line.level)
            self._store.bring_in(entries, partial(self._came, line, self._there.get(line.level, 0)))

    def _ask(self, line: Line, behind: int, now_ms: int) -> None:
        if line.level in self._coming:
            return
        found = self._places.of_line(line, _AT_ONCE, behind)
        near = [place for place in found[1:] if place.due_ms <= now_ms + _AHEAD_MS]
        wanted = [found[0], *near]
        self._coming.add(line.level)
        places = [(place.log_offset, place.size) for place in wanted if place.size]
        self._store.bring_in(places, partial(self._came, line, line.next + behind + len(wanted)))

    def _came(self, line: Line, end: int) -> None:
        self._coming.discard(line.level)
        self._there[line.level] = end
        self._came_to()
