"""Delivery: a message that is due gets its real topic and is appended again, once.

`deliver` delivers from the lines (delay levels) and the timer (times of delivery) as long as something is due.
`rest_s` returns how long nothing will be due, and `on_earlier` is called when that changed.  A batch of due records is
read, made into real messages and appended as one run.  Progress counts only what is confirmed, and is saved once a
second when the log that it was derived from is durable (`progressfile`).  Each delivered record names the one that it
was made of.  So after a crash the document and the log behind it together say what was delivered (`recovery`), and
everything is delivered exactly once.  Deliveries that a power cut removes (ASYNC_FLUSH) are made again.

While the gate is shut nothing is delivered; a full disk shuts it, and failed batches are tried again when it opens.
Memory is bounded by the number of batches that are not confirmed.

`carrying` copies messages whose segment is about to be removed to the log's end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.append.writing import append_run
from gantry.clock import SteadyClock
from gantry.errors import Refusal
from gantry.leaves import delays
from gantry.metadata.state import State
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.schedule import disguise, recovery
from gantry.schedule.book import UNDER_WAY_MAX, DelayBook, Flight
from gantry.schedule.carrying import DelayCarrying
from gantry.schedule.changes import PendingChanges
from gantry.schedule.counts import LEVEL, TIMER, DelayCounts
from gantry.schedule.entryreads import EntryReads
from gantry.schedule.holding import Holding
from gantry.schedule.linereads import LineReads
from gantry.schedule.lines import NEVER, Line
from gantry.schedule.places import RUN_BYTES_MAX, DelayedEntries, DelayedEntry, fitting
from gantry.schedule.progressfile import ProgressFile
from gantry.schedule.rules import DelayRules
from gantry.schedule.timer import SLOT_MS
from gantry.schedule.undressing import Undressing
from gantry.schedule.waiting import WaitingCounts
from gantry.schedule.wheel import WheelPosition
from gantry.store import duetimes
from gantry.store.coldplaces import begins_at

if TYPE_CHECKING:
    from gantry.leaves.delays import Place
    from gantry.leaves.records import Entry
    from gantry.store.store import Store

# One slice of the loop: about half a millisecond.
_BATCH = 64
# Messages that are due this soon have their place looked up, and their record read into the page cache.
_AHEAD_MS = 10_000
_LOOK_S = 5.0
_QUIET_S = 0.25  # within this time it is noticed that the clock was set forwards
_EARLY_S = 0.05  # a rest may end this much early, together with other timers


class DelayService:
    """Delivers delayed messages; owner of the book.  Loop thread only."""

    def __init__(
        self,
        store: Store,
        state: State,
        topics: Topics,
        gate: WriteGate,
        clock: SteadyClock,
        rules: DelayRules,
        say: Callable[[str, str], object],
    ) -> None:
        self.rules = rules
        self.book = DelayBook()
        self.counts = DelayCounts()
        self.places = DelayedEntries(store.reader)
        self.on_earlier: Callable[[], object] = lambda: None  # called when a rest ends early
        self.took_over = False  # RocketMQ's broker had the folder last, and its timer's state became ours
        self.was_ahead = False  # the document counted messages that are not in the log
        self._store = store
        self._gate = gate
        self._clock = clock
        self._say = say
        self._undressing = Undressing(store.reader, self.book, topics, self.counts, clock, say)
        self.waiting = WaitingCounts(store.reader, self.book, topics, clock)
        self._holding = Holding(store, self.book, self.places, self._undressing, clock)
        self.changes = PendingChanges(self.book, self.counts, store, gate, clock, self.waiting.went)
        self._carrying = DelayCarrying(store, gate, self.places, self._undressing, self.waiting, clock, say)
        self._file = ProgressFile(store, state, self.book, clock)
        self._look_at_s = 0.0
        self._quiet_until_s = 0.0  # nothing is due before, by the monotonic clock
        self._cold: list[tuple[int, int]] = []
        self._line_reads = LineReads(store, self.places, self._wake)
        self._entry_reads = EntryReads(store, self._wake)

    def recover(self, wheel: WheelPosition | None = None) -> Iterator[None]:
        """Find out what is pending, before the first request is served.  wheel: where RocketMQ's timer stood."""
        found = self._file.load()
        self.took_over = wheel is not None and not found.has_timer
        store = self._store
        self.was_ahead = recovery.is_ahead(store, found)
        yield from recovery.read_back(store, self.book, found, self.rules.levels_ms, wheel)
        store.on_dispatched(self._on_dispatched)
        store.confirmed.listen(self.book.land)
        store.retention.owe(self._owed_from)

    @property
    def pending(self) -> int:
        """How many timer messages wait."""
        return self.book.timer.pending

    def is_pending(self, place: DelayedEntry) -> bool:
        """Return whether a timer message is still to be delivered; right also after the clock was set."""
        now_ms, timer = self._clock.now_ms(), self.book.timer
        self.book.advance(now_ms)
        if timer.moments.has(place.offset, place.due_ms):
            return place.due_ms > self._clock.wall_ms()
        if timer.durations.has(place.offset, place.due_ms):
            return True
        return place.due_ms > now_ms and timer.has(place.offset, place.due_ms)

    def is_over(self, topic: str, born_ms: int) -> bool:
        """Return whether the life of a message of this topic is over, so that it will not be delivered."""
        return self._undressing.is_over(topic, born_ms)

    def deliver(self) -> Iterator[None] | None:
        """Deliver what is due, batch by batch; None when nothing is due, or soon."""
        return None if self.rest_s() >= _EARLY_S else self._deliver_due()

    def rest_s(self) -> float:
        """Return for how many seconds nothing is due; at most 0.25, so that a clock set forwards is noticed."""
        return max(0.0, self._quiet_until_s - self._clock.monotonic())

    def _deliver_due(self) -> Iterator[None]:
        # What became due meanwhile is not left to the next run: under load that would be a pause after every run.
        while (yield from self._deliver_round()):
            pass
        # Now, because the clock may be set back before `rest_s` is called.
        now_ms = self._clock.now_ms()
        self.book.advance(now_ms + 1)
        timer = self.book.timer
        next_ms = min(timer.next_ms(), timer.horizon_ms - _AHEAD_MS)
        if next_ms >= timer.near_until_ms:
            next_ms = max(next_ms, now_ms + int(_QUIET_S * 1000))  # until its entries are read, or a look at the clock
        head_ms = self._heads_ms()
        if skipped_ms := self._skipped_ms(now_ms):
            head_ms = min([line.head_ms + skipped_ms[key] for key, line in self.book.lines.items()], default=NEVER)
        rest_ms = min(next_ms - now_ms, self._holding.rest_ms(), head_ms - now_ms)
        self._quiet_until_s = self._clock.monotonic() + min(max(rest_ms, 0) / 1000, _QUIET_S)

    def _deliver_round(self) -> Generator[None, None, bool]:
        """Deliver what is due by now; return whether there was anything."""
        now_ms, now_s = self._clock.look(), self._clock.monotonic()
        self._holding.look()
        is_any, skipped_by_line = False, self._skipped_ms(now_ms)
        for key, line in [(key, line) for key, line in self.book.lines.items() if line.head_ms != NEVER]:
            skipped_ms = skipped_by_line.get(key, 0)
            while line.is_due(line.next, line.head_ms, now_ms, now_s, skipped_ms) and self._can_deliver:
                if not self._deliver_line(line, now_ms, now_s, skipped_ms):
                    break
                is_any = True
                yield
            else:
                self._line_reads.ready(line, now_ms, _BATCH)
        timer = self.book.timer
        for _ in timer.approach(now_ms + _AHEAD_MS, self._approached):
            self._warm_up()
            yield
        while self._can_deliver:
            # What is not near yet may be due before the others.
            slot, offsets = timer.due(min(now_ms, timer.near_until_ms - 1), _BATCH)
            if not offsets or not (
                self._holding.hold(slot, offsets, self._heads_ms()) or self._deliver_slot(slot, offsets)
            ):
                break
            is_any = True
            yield
        while self._can_deliver and self._deliver_held():
            is_any = True
            yield
        return is_any

    def _skipped_ms(self, now_ms: int) -> dict[int, int]:
        """Return by line how much later it is due than its store times say; empty unless the clock was set forwards."""
        if not self._clock.has_leaps:
            return {}
        return {key: self._clock.skipped_ms(line.delay_ms, now_ms) for key, line in self.book.lines.items()}

    @property
    def _can_deliver(self) -> bool:
        return self._gate.refusal is None and self.book.under_way < UNDER_WAY_MAX

    def _heads_ms(self) -> int:
        """Return when the first message of any level is due, in ms since the epoch."""
        return min([line.head_ms for line in self.book.lines.values()], default=NEVER)

    def _deliver_line(self, line: Line, now_ms: int, now_s: float, skipped_ms: int) -> bool:
        at_hand = self._line_reads.ready(line, now_ms, _BATCH)
        if not at_hand:
            return False
        run = self.places.ready_of_line(line, at_hand, now_ms - skipped_ms, RUN_BYTES_MAX)
        count, start = len(run), self._append_run(run, LEVEL)
        if start is None:
            found = self.places.of_line(line, at_hand)
            when = now_ms, now_s, skipped_ms
            dues = (n for n, one in enumerate(found) if not line.is_due(one.offset, one.due_ms, *when))
            batch = fitting(found[: next(dues, None)])
            if not batch:
                return False
            count, start = len(batch), self._append(batch, LEVEL)
        if start < 0:
            return False
        line.next += count
        self.places.look_at_head(line)
        self._fly(Flight(start, self._store.written.offset, line, line.next))
        return True

    def _deliver_slot(self, slot: int, offsets: Sequence[int]) -> bool:
        run = self.places.ready_of_timer(slot, offsets, RUN_BYTES_MAX)
        count, start = len(run), self._append_run(run, TIMER, offsets)
        if start is None:
            found = zip(offsets, self.places.of_timer_all(offsets), strict=True)
            batch = fitting([place or DelayedEntry(0, 0, offset, slot) for offset, place in found])
            count, start = len(batch), self._append([place for place in batch if not place.is_cancel], TIMER)
        if start < 0:
            return False
        self.book.timer.done(slot, count)
        first = min(offsets[:count])
        self._fly(Flight(start, self._store.written.offset, None, first, slot - SLOT_MS + 1, slot))
        return True

    def _deliver_held(self) -> bool:
        """Deliver messages that were held back and have come; return whether there were any."""
        timer, is_any = self.book.timer, False
        if not (timer.moments.all or timer.durations.all):
            return False
        for held, due in self._holding.due(_BATCH, self._heads_ms()):
            places = zip(due, self.places.of_timer_all([offset for offset, _ in due]), strict=True)
            batch = fitting([place or DelayedEntry(0, 0, offset, one.due_ms) for (offset, one), place in places])
            start = self._append([place for place in batch if not place.is_cancel], TIMER)
            gone = due[: 0 if start < 0 else len(batch)]
            for offset, one in due[len(gone) :]:
                held.add(offset, one)
            if not gone:
                continue
            timer.pending -= len(gone)
            first, dues_ms = min([offset for offset, _ in gone]), [one.due_ms for _, one in gone]
            self._fly(Flight(start, self._store.written.offset, None, first, min(dues_ms), max(dues_ms)))
            is_any = True
        return is_any

    def _append_run(self, run: Sequence[Place], kind: str, offsets: Sequence[int] = ()) -> int | None:
        """Append real messages as `_append` does; None, and nothing happened, when one needs a closer look.

        offsets: the queue offsets of timer messages.
        """
        sends = self._undressing.run(run) if run else None
        if sends is None:
            return None
        start = self._store.written.offset
        if isinstance(append_run(self._store, self._gate, sends, is_scanned=True), Refusal):
            return -1
        self.waiting.delivered(offsets, sends)
        self.counts.deliver_all(kind, self._clock.now_ms(), [due_ms for _, _, due_ms in run])
        return start

    def _append(self, batch: Sequence[DelayedEntry], kind: str) -> int:
        """Append the real messages as one run; return where the run begins, -1 when it was not possible."""
        sends, places = [], []
        self._undressing.expired.clear()
        for place in batch:
            send = self._undressing.delivery(place)
            if send is not None:
                sends.append(send)
                places.append(place)
        start = self._store.written.offset
        if sends and isinstance(append_run(self._store, self._gate, sends), Refusal):
            return -1
        if kind == TIMER:
            self.waiting.delivered([place.offset for place in places], sends)
            self.waiting.dropped(self._undressing.expired)
        now_ms = self._clock.now_ms()
        for place in places:
            self.counts.deliver(kind, now_ms - place.due_ms)
        return start

    def _fly(self, flight: Flight) -> None:
        self.book.fly(flight, self._store.confirmed.offset)

    def _approached(self, offsets: Sequence[int]) -> list[int | None] | None:
        if not self._entry_reads.are_there(offsets):
            return None
        warm_from = self._store.dispatched.offset - self._store.settings.warm_bytes
        run = self.places.ready_of_timer(NEVER, offsets, NEVER)
        if len(run) == len(offsets):
            self._cold += [(log_offset, size) for log_offset, size, _ in run if log_offset < warm_from]
            return [duetimes.due_ms(code) for _, _, code in run]
        found = self.places.of_timer_all(offsets)
        self._cold += [(one.log_offset, one.size) for one in found if one is not None and one.log_offset < warm_from]
        return [None if one is None else one.due_ms for one in found]

    def _warm_up(self) -> None:
        """Have the cold reader read records far behind the log's end, so that their delivery does not wait for it."""
        if self._cold:
            self._store.bring_in(self._cold, lambda: None)
            self._cold = []

    def _wake(self) -> None:
        if self._quiet_until_s:
            self._quiet_until_s = 0.0
            self.on_earlier()

    def _on_dispatched(self, topic: str, queue_id: int, end: int, entries: list[Entry]) -> None:
        book = self.book
        if topic in duetimes.TOPICS:
            self._wake()
        if topic == names.TIMER_TOPIC and queue_id == 0:
            book.advance(self._clock.now_ms())
            dues_ms = duetimes.codes(topic, entries, ())
            self.waiting.came(entries, dues_ms)
            for number, code in enumerate(dues_ms):
                dues_ms[number] = duetimes.due_ms(code)
                if code >= duetimes.CANCEL_BIT:
                    if book.cancels.add(dues_ms[number], delays.last(entries[number].properties, disguise.CANCELS)):
                        self.waiting.recount()
                elif code < delays.HASH_MAX:
                    dues_ms[number] = entries[number].store_ms  # without a time it is due at once
            book.came_all([entry.queue_offset for entry in entries], dues_ms)
        elif topic == names.SCHEDULE_TOPIC:
            line = book.lines.get(queue_id + 1)
            if line is None:
                line = book.lines[queue_id + 1] = Line(queue_id + 1, self.rules.levels_ms[-1], end - len(entries), end)
            line.end = end
            if line.head_ms == NEVER:
                self.places.look_at_head(line)

    def tick(self) -> Iterator[None]:
        """Once a second: save progress, and copy messages whose segment is about to be removed, in slices."""
        if self._clock.monotonic() >= self._look_at_s:
            self._look_at_s = self._clock.monotonic() + _LOOK_S
            self.book.look_for_first()
            yield
        self._file.save()
        position_ms = self.book.advance(self._clock.now_ms())
        yield from self.book.cancels.forget_before(min(position_ms, self._heads_ms()))
        yield
        yield from self._carrying.go_on()

    def save_now(self) -> None:
        """Save the document before returning; the log is durable as far as it is written."""
        self._file.save_now()

    def follow(self, document: Mapping[str, object]) -> None:
        """Save the progress of the master's deliveries, for a later time as master."""
        self._file.follow(document)

    def retry(self) -> None:
        """Save again what could not be saved; also on a slave, which saves the master's document."""
        self._file.retry()

    def wheel_position(self) -> WheelPosition | None:
        """Return where RocketMQ's timer would go on; None when there never was a timer message."""
        self.book.look_for_first()
        if not self.book.timer_end:
            return None
        return WheelPosition(self.book.advance(self._clock.now_ms()), self.book.first_offset)

    def document(self) -> dict[str, object] | None:
        """Return the document that was saved last and is durable; None when there is none."""
        return self._file.document()

    def current(self) -> dict[str, object]:
        """Return the document of the present progress, which may not be durable yet."""
        return self._file.current()

    def _owed_from(self) -> int | None:
        """Return the log offset from which retention may remove nothing; None when nothing is pending."""
        heads = [
            begins_at(self._store, names.SCHEDULE_TOPIC, line.queue_id, line.kept) for line in self.book.lines.values()
        ]
        first = begins_at(self._store, names.TIMER_TOPIC, 0, self.book.first_offset)
        return min([offset for offset in (*heads, first) if offset is not None], default=None)
