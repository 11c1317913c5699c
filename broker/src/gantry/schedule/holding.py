"""Timer messages that are due by the steady clock and must wait all the same: which of them, and until when.

See `held` for the two reasons.  A cancel is held with its message: it may not count as done while that is pending, else
a start would deliver what was cancelled.  So a cancel of a level's message, whose line is late, waits for the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gantry.clock import SteadyClock
from gantry.model import names
from gantry.schedule.book import DelayBook
from gantry.schedule.held import NEVER_MS, HeldBack, HeldUntil
from gantry.schedule.places import DelayedEntries, DelayedEntry
from gantry.schedule.undressing import Undressing

if TYPE_CHECKING:
    from gantry.store.store import Store

_AGAIN_MS = 250  # a cancel whose line is late is looked at again


class Holding:
    """Holds timer messages back, and tells which have come.  Loop thread only."""

    def __init__(
        self, store: Store, book: DelayBook, places: DelayedEntries, undressing: Undressing, clock: SteadyClock
    ) -> None:
        self._store = store
        self._book = book
        self._timer = book.timer
        self._places = places
        self._undressing = undressing
        self._clock = clock
        self._leaps = clock.leap_count
        self._set_before = 0  # timer messages before this offset may have been stored before the last leap forwards

    def look(self) -> None:
        """Notice that the wall clock was set forwards."""
        if self._clock.leap_count != self._leaps:
            self._leaps = self._clock.leap_count
            self._set_before = self._store.next_queue_offset(names.TIMER_TOPIC, 0)

    def hold(self, slot: int, offsets: Sequence[int], heads_ms: int) -> bool:
        """Hold back messages of the slot that is due first; return whether there were any.

        heads_ms: when the first message of any level is due.
        """
        wall_ms = self._clock.wall_ms()
        stored_ms = self._book.stored_ms
        if slot <= wall_ms and slot < heads_ms and min(offsets) >= self._set_before and not stored_ms:
            return False
        moments: dict[int, HeldUntil] = {}
        durations: dict[int, HeldUntil] = {}
        for place in self._places.of_timer_all(offsets):
            if place is None:
                continue
            if place.is_cancel and place.due_ms >= heads_ms:
                durations[place.offset] = HeldUntil(place.due_ms, self._now_ms() + _AGAIN_MS)
            elif not place.is_lease and self._undressing.is_moment(place):
                if place.due_ms > wall_ms:
                    moments[place.offset] = HeldUntil(place.due_ms, place.due_ms)
            elif place.offset < self._set_before or place.log_offset in stored_ms:
                if left_ms := self._left_ms(place):
                    durations[place.offset] = HeldUntil(place.due_ms, self._now_ms() + left_ms)
        if moments or durations:
            self._timer.hold(slot, moments, durations)
        return bool(moments or durations)

    def _left_ms(self, place: DelayedEntry) -> int:
        stored_ms = self._undressing.stored_ms(place)
        return 0 if stored_ms is None else self._clock.left_ms(stored_ms, place.due_ms)

    def due(self, count_max: int, heads_ms: int) -> Iterator[tuple[HeldBack, list[tuple[int, HeldUntil]]]]:
        """Yield what is held no longer, with what has held it: it takes back what cannot be delivered."""
        timer = self._timer
        for held, now_ms in ((timer.moments, self._clock.wall_ms()), (timer.durations, self._now_ms())):
            found = held.take_due(now_ms, count_max)
            again = [one for one in found if one[1].due_ms >= heads_ms and self._is_cancel(one[0])]
            for offset, one in again:
                held.add(offset, HeldUntil(one.due_ms, now_ms + _AGAIN_MS))
            if found := [one for one in found if one not in again]:
                yield held, found

    def _is_cancel(self, offset: int) -> bool:
        place = self._places.of_timer(offset)
        return place is not None and place.is_cancel

    def rest_ms(self) -> int:
        """Return for how long nothing that is held is due."""
        timer = self._timer
        if not (timer.moments.all or timer.durations.all):
            return NEVER_MS
        return min(
            timer.moments.first_ms() - self._clock.wall_ms(), timer.durations.first_ms() - self._now_ms()
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
