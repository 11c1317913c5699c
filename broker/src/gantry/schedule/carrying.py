"""Carrying on: pending messages whose segment is about to be removed are copied to the log's end.

The copy is a timer message with the same due time, also of a message with a level; where the clock was set forwards, it
is held back as its original would have been.  Messages that are due within a minute are not copied; retention waits for
them.  What cannot be copied is counted and named, with the reason: the log takes no copy, mostly because the disk has
no room; or the record has no room for what the copy says of itself
(RocketMQ fills properties to the last byte; its brokers' own words are left out first).  Such a record is passed over,
and in a level's line what is behind it waits too; its segment stays until it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.append.writing import append_copies
from gantry.clock import SteadyClock
from gantry.errors import Refusal
from gantry.leaves import records
from gantry.model import names
from gantry.schedule import disguise
from gantry.schedule.book import UNDER_WAY_MAX, Flight
from gantry.schedule.lines import NEVER, Line
from gantry.schedule.places import DelayedEntries, DelayedEntry, fitting
from gantry.schedule.undressing import Undressing
from gantry.schedule.waiting import WaitingCounts
from gantry.store.coldsteps import ColdSteps, Places

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record
    from gantry.store.store import Store

_BATCH = 64
_AHEAD_MS = 60_000

_NO_SPACE = "their properties leave no room for the broker's, and their segment stays until they are due; wait"

_Copy = tuple[DelayedEntry, "Record", str, "Send"]  # what is copied, its record and topic, and the copy


class DelayCarrying:
    """Copies pending messages.  Loop thread only."""

    def __init__(
        self,
        store: Store,
        gate: WriteGate,
        places: DelayedEntries,
        undressing: Undressing,
        waiting: WaitingCounts,
        clock: SteadyClock,
        say: Callable[[str, str], object],
    ) -> None:
        self._store = store
        self._gate = gate
        self._places = places
        self._undressing = undressing
        self._book = undressing.book
        self._counts = undressing.counts
        self._waiting = waiting
        self._clock = clock
        self._say = say
        self._steps = ColdSteps(store, self._carry)
        self._stuck = 0  # found by the look at all of them that is under way

    def go_on(self) -> Iterator[None]:
        """Copy what has to move, in slices; called every second."""
        if not self._store.retention.carry_below():
            self._counts.stuck = 0
        return self._steps.go_on()

    def _carry(self) -> Iterator[Places]:
        limit = self._store.retention.carry_below()
        self._stuck = 0
        if limit:
            for line in list(self._book.lines.values()):
                yield from self._carry_line(line, limit)
            yield from self._carry_timer(limit)
        self._counts.stuck = self._stuck

    def _carry_line(self, line: Line, limit: int) -> Iterator[Places]:
        while True:
            batch = fitting([one for one in self._places.of_line(line, _BATCH) if one.log_offset < limit])
            if not batch or batch[0].due_ms <= self._clock.now_ms() + _AHEAD_MS:
                return
            yield [(one.log_offset, one.size) for one in batch if one.size]
            if line.next != batch[0].offset:
                continue
            # In their order: what cannot be copied holds up those behind it in this line.
            copies, long = self._copies(batch, self._clock.now_ms() + line.delay_ms)
            done = batch[: batch.index(long[0])] if long else batch
            if not self._append([copy for copy in copies if copy[0] in done], batch):
                return
            if done:
                line.next = done[-1].offset + 1
                self._places.look_at_head(line)
                end = self._store.written.offset
                self._book.fly(Flight(end, end, line, line.next), self._store.confirmed.offset)
            if long:
                self._report(long, _NO_SPACE)
                return

    def _carry_timer(self, limit: int) -> Iterator[Places]:
        behind = self._store.reader.first_behind(names.TIMER_TOPIC, 0, limit)
        for offsets in self._book.timer.far_below(behind, _BATCH):
            found = [place for one in offsets if (place := self._places.of_timer(one)) is not None]
            yield [(one.log_offset, one.size) for one in found]
            timer = self._book.timer
            left = [one for one in found if timer.has(one.offset, one.due_ms)]
            while left:
                batch = fitting(left)
                if not self._carry_batch(batch, left):
                    return
                del left[: len(batch)]

    def _carry_batch(self, batch: Sequence[DelayedEntry], left: Sequence[DelayedEntry]) -> bool:
        copies, long = self._copies(batch)
        start = self._store.written.offset
        if not self._append(copies, left):
            return False
        going = [one for one in batch if one not in long]
        for one in going:
            self._book.timer.remove(one.offset, one.due_ms)
        for one, record, topic, _ in copies:
            if not one.is_cancel and not one.is_lease:
                self._waiting.went(one.offset, topic, record.born_ms)
        self._waiting.dropped(self._undressing.expired)
        if going:
            first, first_ms = min([one.offset for one in going]), min([one.due_ms for one in going])
            flight = Flight(start, self._store.written.offset, None, first, first_ms, -1)
            self._book.fly(flight, self._store.confirmed.offset)
        if long:
            self._report(long, _NO_SPACE)
        return True

    def _copies(
        self, batch: Sequence[DelayedEntry], latest_ms: int = NEVER
    ) -> tuple[list[_Copy], list[DelayedEntry]]:
        """Return the copies of these, due at the same time or at `latest_ms`, and those too long for a copy.

        A message of a level waits no longer than the level does now, whatever its entry says (see `lines`).
        """
        self._undressing.expired.clear()
        copies: list[_Copy] = []
        long = []
        for one in batch:
            found = self._undressing.read(one)
            if found is None:
                continue
            record, address = found
            copy = disguise.carried(record, min(one.due_ms, latest_ms))
            if copy is None:
                long.append(one)
            else:
                copies.append((one, record, address.topic, copy))
        return copies, long

    def _append(self, found: Sequence[_Copy], waiting: Sequence[DelayedEntry]) -> bool:
        """Append copies; False when that is not possible now: then these wait, and are reported."""
        copies = [copy for *_, copy in found]
        if self._book.under_way >= UNDER_WAY_MAX:
            return False  # for a moment
        end = append_copies(self._store, self._gate, copies, is_owed=True) if copies else 0
        if isinstance(end, Refusal):
            self._report(waiting, f"{end.remark}, and their segment stays; remove the reason")
            return False
        self._book.moved += [(copy.log_offset, copy.prepared_offset) for copy in copies]
        self._note_stored(found)
        self._counts.carried += len(copies)
        return True

    def _note_stored(self, found: Sequence[_Copy]) -> None:
        """Note when these were stored, for those that wait longer because the clock was set forwards since."""
        now_ms = self._clock.look()
        for one, record, _, copy in found:
            stored_ms = self._book.stored_ms.get(one.log_offset, record.store_ms)
            if self._clock.passed_ms(stored_ms, now_ms) < now_ms - stored_ms:
                self._book.stored_ms[copy.log_offset] = stored_ms

    def _report(self, batch: Sequence[DelayedEntry], why: str) -> None:
        """Count and log messages that have to be copied and cannot be."""
        self._stuck += len(batch)
        self._counts.stuck = max(self._counts.stuck, self._stuck)
        ids = [records.offset_message_id(self._store.store_host, one.log_offset) for one in batch]
        self._say(
            f"stuck delays {self._stuck}",
            f"delayed messages cannot be copied to the log's end: {why}, or cancel them with `gantry delay cancel`: "
            f"{', '.join(ids)}",
        )
