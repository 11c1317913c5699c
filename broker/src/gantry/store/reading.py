"""Reading a store: by queue offset, by log offset, by key, by time.

Everything a reader sees is dispatched, hence confirmed: there is no way to a record but through its queue
entry.  A log offset that a client names is believed only when the record found there names a queue offset
whose entry points back to it; a record faked inside a message body fails that.

Results are memoryviews of the mapped log.  Hand them to the socket at once: they use no memory of their own, but
they keep their segment's memory in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct
from typing import Protocol, TypeVar

from gantry.errors import CorruptRecordError
from gantry.leaves import delays, frames, keys, queues, records
from gantry.store.coldrange import ColdRange
from gantry.store.commitlog import CommitLog
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.fetched import Fetched, FetchStatus, outside
from gantry.store.indexfile import Hit
from gantry.store.keyindex import KeyIndex
from gantry.store.queuefiles import FILLER_SIZE, invalid_at
from gantry.store.queuetable import QueueTable
from gantry.store.watermarks import Watermark

_T = TypeVar("_T")
# RocketMQ's maxFilterMessageCount: at most 16 000 bytes of entries are examined for one pull.
_EXAMINED_MAX = 800
_WALK_RECORDS_MAX = 1024
# What a filter may do between two looks at the clock: some 0.1 ms.
_STEPS = 1024
_ANY_BYTES = 1 << 62
_PLACE = Struct(">qiq")
# The size and the log offset in a record's head (see `leaves.records`).
_HEAD = Struct(">i24xq")


class RecordFilter(Protocol):
    """Chooses records by their properties: gets the values of `names`; `cost` is what one record costs, in steps."""

    @property
    def names(self) -> tuple[bytes, ...]:
        """The names of the properties whose values it needs."""
        ...

    @property
    def cost(self) -> int:
        """How many steps one record takes."""
        ...

    def matches(self, values: Sequence[bytes | None]) -> bool:
        """Whether the record with these values is wanted."""
        ...


StoredMs = Callable[[tuple[int, int, int]], int | None]


class Reader:
    """Reads what is dispatched of one open store.  Loop thread only."""

    def __init__(
        self, log: CommitLog, table: QueueTable, index: KeyIndex, dispatched: Watermark, warm_bytes: int
    ) -> None:
        """warm_bytes: so far behind the end of the log records count as in memory without asking the kernel."""
        self._warm_bytes = warm_bytes
        self._log = log
        self._table = table
        self._index = index
        self._dispatched = dispatched

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """[min, max) of a queue's offsets; None when there is no such queue."""
        queue = self._table.get(topic, queue_id)
        return None if queue is None else (queue.min_offset(self._log.start), queue.next)

    def is_all_read(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether the queue ends at this offset, so that `fetch` would find nothing."""
        queue = self._table.get(topic, queue_id)
        return offset == (0 if queue is None else queue.next)

    def fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        codes: frozenset[int] | None,
        may_wait: bool = True,
    ) -> Fetched:
        """Messages of a queue from offset on, those whose tag code is wanted; the first one whatever its size.

        may_wait: reading them may wait for the disk; else the answer may be `is_cold`, and has no bytes then.
        """
        fetched = self.candidates(topic, queue_id, offset, count_max, bytes_max, codes, may_wait)
        if not fetched.is_cold:
            self.gather(fetched)
        return fetched

    def candidates(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        codes: frozenset[int] | None,
        may_wait: bool = True,
    ) -> Fetched:
        """Like `fetch`, but without the bytes.

        Looks at one queue file or the tail in memory, so a pull may get fewer than there are; next_offset
        goes on behind what was examined.
        """
        queue = self._table.get(topic, queue_id)
        if queue is None:
            return Fetched(FetchStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset(self._log.start), queue.next
        if not low <= offset < high:
            return self._outside(topic, offset, low, high)
        reads = _EXAMINED_MAX if codes else count_max
        located = queue.locate(offset) if may_wait else queue.locate_if_there(offset, reads)
        if isinstance(located, ColdRange):
            return Fetched(FetchStatus.FOUND, offset, low, high, is_cold=True, cold_entries=located)
        buffer, at, count = located
        limit = min(count, max(_EXAMINED_MAX, count_max))
        chosen, examined = queues.select(buffer, at, limit, codes, count_max, bytes_max)
        end = self._dispatched.offset
        good = self._log.good(chosen, end)
        is_cold = not may_wait and good > 0 and self.is_cold(chosen if good == len(chosen) else chosen[:good], end)
        if good and not is_cold and not self._begins_well(*chosen[0]):
            good = 0
        if good < len(chosen):
            # One that is damaged: the good ones before it, or it alone is passed over.
            chosen, examined = queues.select(buffer, at, count, codes, max(good, 1), bytes_max)
            if not good:
                return Fetched(FetchStatus.MESSAGE_WAS_REMOVING, offset + examined, low, high)
        if chosen:
            lag_bytes = end - chosen[0][0]
            return Fetched(FetchStatus.FOUND, offset + examined, low, high, (), 0, lag_bytes, is_cold, chosen)
        if examined:
            return Fetched(FetchStatus.NO_MATCHED_MESSAGE, offset + examined, low, high)
        return Fetched(FetchStatus.MESSAGE_WAS_REMOVING, offset + invalid_at(buffer, at, limit), low, high)

    def gather(self, fetched: Fetched) -> None:
        """Put the bytes of its places into what was found."""
        if fetched.places:
            fetched.buffers = self._log.pieces(fetched.places)
            fetched.bytes = sum(map(len, fetched.buffers))

    def sift(
        self,
        fetched: Fetched,
        at: tuple[str, int, int],
        wanted: RecordFilter,
        count_max: int,
        bytes_max: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> int:
        """Keep of the candidates at (topic, queue id, offset), taken without codes, the records whose properties are
        wanted, and gather their bytes; how many were looked at.

        Ends early, with the next offset behind the last record that was looked at, when enough was found or when,
        after the first few, `is_over` says so.  Of a record only the properties are touched, and only what the filter
        names is looked up.
        """
        places = fetched.places
        taken = queues.Places()
        total = looked_at = 0
        is_enough = False
        step = max(1, _STEPS // wanted.cost)
        while looked_at < len(places) and not is_enough and not (looked_at and is_over()):
            part = places[looked_at : looked_at + step]
            for place, values in zip(part, self._values(part, wanted.names), strict=True):
                if values is not None and wanted.matches(values):
                    is_enough = len(taken) == count_max or (bool(taken) and total + place[1] > bytes_max)
                    if is_enough:
                        break
                    taken.append(place)
                    total += place[1]
                looked_at += 1
        if looked_at < len(places):
            fetched.next_offset = at[2] + self._examined(at, looked_at)
        fetched.places = taken
        self.gather(fetched)
        if not taken:
            fetched.status = FetchStatus.NO_MATCHED_MESSAGE
        return looked_at

    def _examined(self, at: tuple[str, int, int], messages: int) -> int:
        """How many entries stand there up to this many messages: entries of lost messages are between them."""
        queue = self._table.get(at[0], at[1])
        assert queue is not None, "nothing was deleted since the fetch"
        buffer, start, count = queue.locate(at[2])
        return queues.select(buffer, start, count, None, messages, _ANY_BYTES)[1]

    def _values(self, places: list[tuple[int, int]], names: tuple[bytes, ...]) -> list[list[bytes | None] | None]:
        """The values of these properties of each of the records."""
        values: list[list[bytes | None] | None] = []
        while len(values) < len(places):
            segment = self._log.segments.at(places[len(values)][0])
            behind = next(
                (number for number in range(len(values), len(places)) if places[number][0] >= segment.end), len(places)
            )
            values += records.named(segment.view, segment.start, places[len(values) : behind], names)
        return values

    def is_cold(self, places: queues.Places | Sequence[tuple[int, int]], end: int = 0) -> bool:
        """Whether reading these records may wait for the disk; end: where the dispatched log ends, if that is known."""
        end = end or self._dispatched.offset
        return end - places[0][0] > self._warm_bytes and not self._log.in_memory(places)

    def _begins_well(self, log_offset: int, size: int) -> bool:
        """Whether a record's head stands there: against damaged queue files, a consumer would be stuck on it."""
        segment = self._log.segments.at(log_offset)
        at = log_offset - segment.start
        return at + _HEAD.size <= len(segment.view) and _HEAD.unpack_from(segment.view, at) == (size, log_offset)

    def _outside(self, topic: str, offset: int, low: int, high: int) -> Fetched:
        # A consumer with an offset of the deleted topic of this name has read nothing of the new one.
        return outside(offset, low, high, low if topic in self._table.gravestones else high)

    def cold_entries(self, topic: str, queue_id: int, offset: int, count: int) -> ColdRange | None:
        """The place of so many entries of one queue file, if reading them would wait for the disk; else None."""
        queue = self._table.get(topic, queue_id)
        is_stored = queue is not None and queue.first <= offset < queue.stored
        found = queue.locate_if_there(offset, count) if queue and is_stored else None
        return found if isinstance(found, ColdRange) else None

    def look(self, call: Callable[[], _T], brought: Collection[ColdRange]) -> _T | ColdRange:
        """Return what the call finds, or the first place of a queue file that it would wait for; see `QueueFiles`."""
        return self._table.files.look(call, brought)

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tag code) at a queue offset whose record is still there."""
        queue = self._table.get(topic, queue_id)
        return None if queue is None or offset < queue.min_offset(self._log.start) else queue.entry(offset)

    def record(self, entry: tuple[int, int, int]) -> records.Record | None:
        """The record that an entry leads to; None for anything else that stands there."""
        return self._log.record(entry[0], entry[1], self._dispatched.offset)

    def message(self, log_offset: int, size: int) -> frames.Send | None:
        """The message of the dispatched record at this place, to be appended again; None for anything else there."""
        return self._log.message(log_offset, size, self._dispatched.offset)

    def places(self, topic: str, queue_id: int, offset: int, count_max: int) -> list[tuple[int, int, int]]:
        """(log offset, size, tag code) of entries from a queue offset on, as they stand side by side: at least one
        unless the queue ends there.  Fillers and entries of expired records are among them (see `is_place`).
        """
        queue = self._table.get(topic, queue_id)
        if queue is None or not queue.first <= offset < queue.next:
            return []
        buffer, at, count = queue.locate(offset)
        count = min(count, count_max)
        return list(_PLACE.iter_unpack(bytes(buffer[at : at + count * _PLACE.size])))

    def places_at(self, topic: str, queue_id: int, offsets: Sequence[int]) -> list[tuple[int, int, int]]:
        """(log offset, size, tag code) at each of these queue offsets, up to the first that is not there."""
        queue = self._table.get(topic, queue_id)
        found: list[tuple[int, int, int]] = []
        while queue is not None and len(found) < len(offsets) and queue.first <= offsets[len(found)] < queue.next:
            rest = offsets[len(found) :]
            found += delays.entries_at(*queue.locate(rest[0]), rest[0], rest)
        return found

    def ready(self, found: Sequence[tuple[int, int, int]], due_ms: int, bytes_max: int) -> int:
        """How many entries of delayed messages from the first on are due by then and there; see `delays.ready`."""
        return self._log.ready(found, due_ms, bytes_max, self._dispatched.offset)

    def deliveries(self, found: Sequence[tuple[int, int, int]], hidden: str) -> list[frames.Send | None]:
        """The messages of delayed records as consumers get them; see `delays.deliveries`."""
        made: list[frames.Send | None] = []
        while len(made) < len(found):
            rest = found[len(made) :]
            segment = self._log.segments.at(rest[0][0])
            inside = next(
                (number for number, one in enumerate(rest) if not segment.start <= one[0] < segment.end), len(rest)
            )
            made += delays.deliveries(segment.view, segment.start, rest[:inside], hidden)
        return made

    def is_place(self, log_offset: int, size: int) -> bool:
        """Whether an entry names a record that is still there."""
        return size != FILLER_SIZE and self._log.holds(log_offset, size, self._dispatched.offset)

    def is_buried(self, topic: str, log_offset: int) -> bool:
        """Whether the topic was deleted after this place in the log was written."""
        return log_offset < self._table.gravestones.get(topic, 0)

    def first_behind(self, topic: str, queue_id: int, log_offset: int) -> int:
        """The first queue offset whose record begins at or behind this log offset; the queue's end when none does."""
        queue = self._table.get(topic, queue_id)
        return 0 if queue is None else queue.search(queue.first, log_offset)

    def record_at(self, log_offset: int) -> records.Record | None:
        """The dispatched record that begins at this log offset; None for anything else that stands there."""
        size = self.size_at(log_offset)
        found = self._log.record(log_offset, size, self._dispatched.offset)
        if found is None:
            return None
        entry = self.entry(found.topic, found.queue_id, found.queue_offset)
        return found if entry is not None and entry[0] == log_offset and entry[1] == size else None

    def holds(self, log_offset: int, size: int) -> bool:
        """Whether these bytes are dispatched, in one segment, and still there."""
        return self._log.holds(log_offset, size, self._dispatched.offset)

    def size_at(self, log_offset: int) -> int:
        """How long a dispatched record would be that began at this log offset; 0 where there is room for none."""
        end = self._dispatched.offset
        if not self._log.holds(log_offset, records.RECORD_BYTES_MIN, end):
            return 0
        size = int.from_bytes(self._log.slice(log_offset, 4), "big", signed=True)
        return size if self._log.holds(log_offset, size, end) else 0

    @property
    def log_start(self) -> int:
        """The first log offset that is still there."""
        return self._log.start

    def stretch(self, log_offset: int) -> tuple[memoryview, int, int]:
        """Dispatched log around this offset, of one segment: memory, log offset of its first byte, where it ends."""
        return self._log.around(log_offset, self._dispatched.offset)

    def entries(self, log_offset: int) -> Iterator[list[records.Entry]]:
        """All dispatched records from the one that begins here on, a few thousand at a time."""
        while log_offset < self._dispatched.offset:
            segment = self._log.segments.at(log_offset)
            limit = min(segment.end, self._dispatched.offset)
            found, stop, reason = records.walk(
                segment.view, log_offset - segment.start, limit - segment.start, log_offset, False, _WALK_RECORDS_MAX
            )
            at = segment.end if reason == "blank" else segment.start + stop
            if at == log_offset:
                raise CorruptRecordError(f"segment {segment.file.path}: {reason} at {log_offset}")
            log_offset = at
            yield found

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time in ms of the record at a queue offset; None when there is none."""
        entry = self.entry(topic, queue_id, offset)
        return None if entry is None else self.stored_ms(entry)

    def stored_ms(self, entry: tuple[int, int, int]) -> int | None:
        """Store time of the record that an entry leads to; None for anything else that stands there."""
        found = self.record(entry)
        return None if found is None else found.store_ms

    def oldest_ms(self) -> int:
        """Store time of the first record that is still in the log; -1 when there is none, or it is not known yet."""
        return -1 if self._log.start >= self._dispatched.offset else self._log.segments.oldest_ms()

    def offset_by_time(
        self, topic: str, queue_id: int, at_ms: int, upper: bool = False, stored_ms: StoredMs | None = None
    ) -> int:
        """The first queue offset stored at or after at_ms; upper: the last one stored at or before it.

        stored_ms: reads an entry's store time; by default it may wait for the disk, see `timesearch`.

        RocketMQ: an unknown queue is at 0, a time behind the newest record gives the end of the queue, and
        with upper a time before the oldest gives the oldest.
        """
        queue = self._table.get(topic, queue_id)
        if queue is None:
            return 0
        if upper:
            after = self._search_time(queue, at_ms + 1, stored_ms or self.stored_ms)
            return max(after - 1, queue.min_offset(self._log.start))
        return self._search_time(queue, at_ms, stored_ms or self.stored_ms)

    def _search_time(self, queue: ConsumeQueue, at_ms: int, stored_ms: StoredMs) -> int:
        # Store times never fall within a log, so bisection is exact.
        def is_behind(entry: tuple[int, int, int]) -> bool:
            found = stored_ms(entry)
            return found is not None and found >= at_ms

        return queue.first_where(queue.min_offset(self._log.start), is_behind)

    def walk(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | ColdRange | None]:
        """Log offsets that may have a key, newest first, in steps with a None after each; see `keysearch`."""
        hits = self._index.walk(topic, key, begin_ms, end_ms)
        return (hit.log_offset if isinstance(hit, Hit) else hit for hit in hits)

    def bytes_at(self, log_offset: int, size: int) -> memoryview:
        """The stored bytes of a record that is there."""
        return self._log.slice(log_offset, size)

    def with_key(self, log_offset: int, topic: str, key: bytes) -> records.Record | None:
        """The dispatched record that begins here, if it is of the topic and has the key."""
        found = self.record_at(log_offset)
        if found is None or found.topic != topic:
            return None
        entries, _, _ = records.walk(self._log.slice(log_offset, found.size), 0, found.size, log_offset, False, 1)
        return found if entries and key in keys.keys_of(entries[0]) else None
