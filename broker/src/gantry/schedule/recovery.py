"""Finding what is pending at a start: from the saved document, the queues, and the part of the log behind the document.

    the document                what was delivered when it was saved (`progress`)
    the log from `log` on       deliveries name the record that they were made of: these are delivered as well
    the timer topic's queue     everything else in it is pending, but for what a later record replaces (`retimes`)
    a level's queue             everything behind the last one that was delivered is pending

Where RocketMQ's broker wrote last, the document has nothing about the timer.  Then `timercheck` says up to which time
its wheel was delivered and up to which offset it had read the queue (`wheel`).  The wheel itself is not needed: every
message in it is in the queue.  A message that RocketMQ rolled is there more than once; the newest copy counts.  Without
any of these files the whole log is read for deliveries, and everything else is pending.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.leaves import delays, fields, records, zerosectors
from gantry.model import names
from gantry.schedule import disguise, retimes
from gantry.schedule.book import DelayBook
from gantry.schedule.lines import Line
from gantry.schedule.places import DelayedEntries, DelayedEntry
from gantry.schedule.progress import DeliveryProgress, Eras
from gantry.store import duetimes

if TYPE_CHECKING:
    from gantry.leaves.records import Entry
    from gantry.schedule.wheel import WheelPosition
    from gantry.store.store import Store

_PIECE = 1024
_NOT_DELIVERED_OF = frozenset({names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC})


def read_back(
    store: Store, book: DelayBook, progress: DeliveryProgress, levels_ms: tuple[int, ...], wheel: WheelPosition | None
) -> Iterator[None]:
    """Fill the book with what is pending, in small slices."""
    low, high = store.queue_range(names.TIMER_TOPIC, 0) or (0, 0)
    book.timer_end = high
    if progress.has_timer:
        book.eras = Eras([*progress.done, (min(progress.end, high), 0)])
        low = max(low, min(progress.first, high))
    elif wheel is not None:
        book.eras = Eras([(0, wheel.done_ms), (min(wheel.queue_offset, high), 0)])
    marks = _Marks()
    has_word = progress.has_timer or progress.log is None
    if has_word and (low < high or _has_lines(store, progress.levels)):
        yield from marks.read(store, progress.log or 0)
    book.moved.extend(marks.moved)
    yield from _make_lines(store, book, progress.levels, levels_ms, marks)
    places = DelayedEntries(store.reader)
    rolled: dict[bytes, int] = {}
    if not progress.has_timer:
        yield from _find_rolled(store, places, range(low, high), rolled)
    last_ms = 0
    for found in _pieces(store, places, range(low, high)):
        for place in found:
            if place.is_retime:
                _replace(store, book, place)
            if book.eras.is_done(place.offset, place.due_ms) or place.log_offset in marks.carried:
                continue
            if place.log_offset in marks.delivered:
                last_ms = max(last_ms, place.due_ms)
            else:
                _enter(store, book, place, rolled)
        yield
    if last_ms:
        book.note_earlier(marks.log, last_ms)
    book.look_for_first()


def is_ahead(store: Store, progress: DeliveryProgress) -> bool:
    """Whether the document counts deliveries, or a part of the log, that the log does not have."""
    ends = [(names.TIMER_TOPIC, 0, max(progress.end, progress.first))]
    ends += [(names.SCHEDULE_TOPIC, level - 1, offset) for level, offset in progress.levels.items()]
    is_beyond = any(offset > (store.queue_range(topic, queue_id) or (0, 0))[1] for topic, queue_id, offset in ends)
    return is_beyond or (progress.log or 0) > store.dispatched.offset


def _has_lines(store: Store, at: dict[int, int]) -> bool:
    """Return whether a level has messages behind the document; if none has, no delivery in the log matters."""
    levels = [queue_id + 1 for topic, queue_id in store.queues() if topic == names.SCHEDULE_TOPIC]
    return any(at.get(level, 0) < (store.queue_range(names.SCHEDULE_TOPIC, level - 1) or (0, 0))[1] for level in levels)


class _Marks:
    """Found in the log behind the document: log offsets of records that were delivered or copied."""

    def __init__(self) -> None:
        self.log = 0
        self.delivered: set[int] = set()
        self.carried: set[int] = set()
        self.moved: list[tuple[int, int]] = []

    def read(self, store: Store, log: int) -> Iterator[None]:
        self.log = max(log, store.reader.log_start)
        if self.log >= store.dispatched.offset:
            return
        first = store.reader.record_at(0)
        of_first = first.properties if first is not None and first.topic in duetimes.TOPICS else b""
        of_first = zerosectors.guarded(of_first, records.PROPERTIES_BYTES_MAX)  # as its delivery was written
        for entries in store.reader.entries(self.log):
            for entry in entries:
                original = delivered_by(entry, of_first)
                if original is None:
                    continue
                self.delivered.add(original)
                if entry.topic == names.TIMER_TOPIC:
                    self.carried.add(original)
                    self.moved.append((entry.log_offset, original))
            yield


def _make_lines(
    store: Store, book: DelayBook, at: dict[int, int], levels_ms: tuple[int, ...], marks: _Marks
) -> Iterator[None]:
    """A line for each level, and for each queue that has messages from a time with more levels."""
    filled = [queue_id + 1 for topic, queue_id in store.queues() if topic == names.SCHEDULE_TOPIC]
    places = DelayedEntries(store.reader)
    ordered = sorted(marks.delivered)
    for level in sorted({*range(1, len(levels_ms) + 1), *filled}):
        low, high = store.queue_range(names.SCHEDULE_TOPIC, level - 1) or (0, 0)
        begin = min(max(at.get(level, 0), low), high)
        line = book.lines[level] = Line(level, levels_ms[min(level, len(levels_ms)) - 1], begin, high)
        for behind in _behind_marked(store, line, marks.delivered, ordered):
            line.next = line.kept = behind
            yield
        places.look_at_head(line)


def _behind_marked(store: Store, line: Line, marked: set[int], ordered: list[int]) -> Iterator[int]:
    """Queue offsets up to which a line is done, piece by piece.

    A line is delivered, and copied, in its order, and the log holds a prefix of what was written.  So an unmarked
    record before a marked one was skipped for good: cancelled, for a deleted topic, or unreadable.  Behind the last
    marked one everything is pending.  ordered: the marks ascending; parts without any are skipped.
    """
    at = behind = line.next
    while ordered and (found := store.reader.places(names.SCHEDULE_TOPIC, line.queue_id, at, _PIECE)):
        for offset, (log_offset, size, _) in enumerate(found, at):
            if log_offset in marked and store.reader.is_place(log_offset, size):
                behind = offset + 1
        yield behind
        above = bisect_right(ordered, found[-1][0])
        if above == len(ordered):
            return
        at = max(at + len(found), store.reader.first_behind(names.SCHEDULE_TOPIC, line.queue_id, ordered[above]))


def delivered_by(entry: Entry, of_first: bytes) -> int | None:
    """The log offset of the delayed record that this one was made of; None for what was made of none.

    of_first: the properties of the log's first record if that is a delayed one, else b"".
    """
    if entry.topic in _NOT_DELIVERED_OF:
        return None
    if entry.topic == names.TIMER_TOPIC:
        # A copy that we made because the segment of the original was about to go.
        return fields.integer(delays.last(entry.properties, disguise.CARRIED).decode("ascii", "replace"))
    if entry.prepared_offset:
        return entry.prepared_offset
    # Made of the first record of the log, or of none, whatever its properties: applications forward received messages.
    # The properties of the first record, unchanged, would delay a new message; so only its delivery has them.
    is_of_first = bool(of_first) and entry.properties == of_first
    return 0 if is_of_first and delays.last(of_first, disguise.REAL_TOPIC) == entry.topic.encode() else None


def _pieces(store: Store, places: DelayedEntries, offsets: range) -> Iterator[list[DelayedEntry]]:
    at = offsets.start
    while at < offsets.stop:
        found = store.reader.places(names.TIMER_TOPIC, 0, at, _PIECE)
        if not found:
            return
        made = [places.place(*one[:2], offset, one[2]) for offset, one in enumerate(found, at)]
        at += len(found)
        yield [place for place in made if place is not None]


def _enter(store: Store, book: DelayBook, place: DelayedEntry, rolled: dict[bytes, int]) -> None:
    if place.is_cancel or rolled:
        record = store.reader.record((place.log_offset, place.size, 0))
        if record is None:
            return
        if place.is_cancel:
            book.cancels.add(place.due_ms, delays.last(record.properties, disguise.CANCELS))
        elif _rolls(record.properties) < rolled.get(_name(record.properties), 0):
            return
    book.timer.add(place.offset, place.due_ms)
    if place.is_lease:
        book.leases.append(place)


def _replace(store: Store, book: DelayBook, place: DelayedEntry) -> None:
    """Remove the place that this record replaces, also when the record was delivered or copied since."""
    record = store.reader.record((place.log_offset, place.size, 0))
    replaced = None if record is None else retimes.replaced_by(record.properties)
    if replaced is not None and replaced.offset < place.offset:
        book.timer.remove(replaced.offset, replaced.due_ms)


def _find_rolled(store: Store, places: DelayedEntries, offsets: range, rolled: dict[bytes, int]) -> Iterator[None]:
    """Count by unique key how often messages were rolled, for those that were."""
    for found in _pieces(store, places, offsets):
        for place in found:
            record = store.reader.record((place.log_offset, place.size, 0))
            if record is not None and (rolls := _rolls(record.properties)):
                rolled[_name(record.properties)] = max(rolls, rolled.get(_name(record.properties), 0))
        yield


def _name(text: bytes) -> bytes:
    return delays.last(text, disguise.REAL_TOPIC) + b"#" + delays.last(text, b"UNIQ_KEY")


def _rolls(text: bytes) -> int:
    return fields.integer(delays.last(text, disguise.ROLLED).decode("ascii", "replace")) or 0
