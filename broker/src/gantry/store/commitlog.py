"""The commit log: records one behind the other; queues and index are derived from it and can be built again.

A run of messages is encoded into one reused buffer and leaves by one pwrite (about 0.3 us a record in runs
of 64, 0.9 us alone; reference machine: 2 vCPU, ext4).  A record never spans segments: when it and 8 more
bytes do not fit, a blank record fills the segment and the record begins the next one.

Nothing of a run is visible before all of it is written: the written mark moves last.  A run that fails in
the middle is zeroed again, so that no half of a refused message can come back at recovery.

Only the loop's thread calls this class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from gantry.errors import CorruptRecordError, DiskFullError, StoreError
from gantry.leaves import delays, frames, halves, queues, records, runs
from gantry.store.background import Worker, in_memory, reading
from gantry.store.disk import File
from gantry.store.segments import NEAR_BYTES, Segment, Segments

BLANK_BYTES = records.BLANK_BYTES_MIN
# A read buffer's worth of messages and the largest message allowed, encoded; grows when a run needs more.
_BUFFER_BYTES = 1 << 20
# Entries of runs that wait to be confirmed; beyond it they are read back from the log.
_RECENT_MAX = 8192
_PIECES_MAX = 4
_PIECE_BYTES_MIN = 8 << 10
# Of the last segment that a full disk has: what retention waits for can still be carried on then.
_SHARE_FOR_OWED = 16
_REWRITE_CHUNK_BYTES = 1 << 20
_HEAD = Struct(">ii")

Sends = Sequence[frames.Send]


class RunTooLongError(StoreError):
    """These messages can never be appended together: they do not fit one segment, or one of them no record."""


class ZeroSectorError(StoreError):
    """The properties of one of these messages need their checksum, without which a start would cut the record."""


class CommitLog:
    """Appends to and reads from the segments."""

    def __init__(self, segments: Segments, segment_bytes: int) -> None:
        self.segments = segments
        self.end = 0
        self._segment_bytes = segment_bytes
        self._buffer = bytearray(min(_BUFFER_BYTES, segment_bytes))
        self._view = memoryview(self._buffer)
        self._encoded = (0, 0)  # the stretch of log that the buffer still holds from its beginning on
        self._recent: deque[tuple[int, int, list[records.Entry]]] = deque()  # runs with entries not yet taken
        self._recent_count = 0
        self._active: Segment | None = None

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return self.segments.start

    @property
    def is_short(self) -> bool:
        """Whether the disk is full and the last segment nearly so: what is left is for copies that are owed."""
        active = self._active
        return (
            self.segments.is_short
            and active is not None
            and active.end == self.segments.end
            and active.end - self.end < self._segment_bytes // _SHARE_FOR_OWED
        )

    def append(
        self, sends: Sends, store_ms: int, store_host: bytes, together: bool = False, is_scanned: bool = False
    ) -> int:
        """Write the run, give each send its log_offset and size, return the new end.

        together: all of it in one segment.  is_scanned: see `Store.append`.  DiskFullError, RunTooLongError and
        ZeroSectorError: nothing happened.  Any other StoreError: the log must not be appended to any more.
        """
        host_bytes = len(store_host)
        try:
            total = records.run_bytes(sends, host_bytes)
        except OverflowError as error:
            raise RunTooLongError(str(error)) from error
        except ValueError as error:
            raise ZeroSectorError(str(error)) from error
        active = self._active
        if active is not None and total + BLANK_BYTES <= active.end - self.end:
            start, end = self.end, self.end + total
            self._encoded = (0, 0)
            self._encode(sends, 0, total, start, store_ms, store_host)
            self._write([(active, start - active.start, total)])
            self._encoded = (start, end)
            if is_scanned:
                self._remember(start, end, runs.entries(sends, store_ms, host_bytes))
            self.end = end
            return end
        sizes = [records.size_of(send, host_bytes) for send in sends]
        return self._append_over(self._parts(sends, sizes, together), store_ms, store_host)

    def _parts(self, sends: Sends, sizes: list[int], together: bool) -> list[tuple[int, int, Sends]]:
        """The run cut where segments end: (log offset, bytes, sends); a part may be empty before a roll."""
        if together or max(sizes) + BLANK_BYTES > self._segment_bytes:
            needed = sum(sizes) if together else max(sizes)
            if needed + BLANK_BYTES > self._segment_bytes:
                raise RunTooLongError(
                    f"{needed} bytes to append at once do not fit segments of {self._segment_bytes} bytes"
                )
        parts: list[tuple[int, int, Sends]] = []
        at, begun, used = self.end, 0, 0
        room = self._room(at)
        if together and sum(sizes) + BLANK_BYTES > room:
            parts.append((at, 0, ()))
            at, room = at + room, self._segment_bytes
        for number, size in enumerate(sizes):
            if used + size + BLANK_BYTES > room:
                parts.append((at, used, sends[begun:number]))
                at, room, begun, used = at + room, self._segment_bytes, number, 0
            used += size
        parts.append((at, used, sends[begun:]))
        return parts

    def _room(self, at: int) -> int:
        return self._segment_bytes - at % self._segment_bytes

    def _remember(self, start: int, end: int, entries: list[records.Entry]) -> None:
        self._recent_count += len(entries)
        if self._recent_count > _RECENT_MAX:
            self._recent.clear()
            self._recent_count = len(entries)
        self._recent.append((start, end, entries))

    def take_entries(self, start: int, end: int) -> tuple[list[records.Entry], int]:
        """The entries of the runs from start on that are still at hand, once, and up to where that is."""
        recent = self._recent
        entries: list[records.Entry] = []
        while recent and recent[0][0] <= start and recent[0][1] <= end:
            begun, stop, found = recent.popleft()
            self._recent_count -= len(found)
            if begun == start:
                if entries:
                    entries += found
                else:
                    entries = found
                start = stop
        return entries, start

    def _append_over(self, parts: list[tuple[int, int, Sends]], store_ms: int, store_host: bytes) -> int:
        self._encoded = (0, 0)
        # Every segment that the run needs exists before its first byte is written.
        self.segments.ensure(parts[-1][0])
        written: list[tuple[Segment, int, int]] = []
        at = 0
        for number, (log_offset, used, sends) in enumerate(parts):
            segment = self.segments.at(log_offset)
            self._encode(sends, at, used, log_offset, store_ms, store_host)
            if number < len(parts) - 1:
                self._grow(at + used + BLANK_BYTES)
                records.encode_blank(self._buffer, at + used, self._room(log_offset + used))
                used += BLANK_BYTES
            written.append((segment, log_offset - segment.start, used))
            at += used
        self._write(written)
        log_offset, used, _ = parts[-1]
        self.end = log_offset + used
        self._active = self.segments.at(log_offset)
        self.segments.prepare(self._active.end)
        return self.end

    def _encode(self, sends: Sends, at: int, total: int, log_offset: int, store_ms: int, store_host: bytes) -> None:
        self._grow(at + total)
        end = records.encode_run(self._buffer, at, log_offset, sends, store_ms, store_host)
        assert end == at + total, f"records of {end - at} bytes were announced as {total}"

    def _grow(self, needed: int) -> None:
        if needed > len(self._buffer):
            # A new one: while a view of the old one exists, it cannot be resized.
            self._buffer = self._buffer + bytes(needed - len(self._buffer))
            self._view = memoryview(self._buffer)

    def _write(self, pieces: list[tuple[Segment, int, int]]) -> None:
        """Write consecutive pieces of the buffer, each (segment, position in it, bytes), or take them all back."""
        done = 0
        try:
            for segment, position, count in pieces:
                segment.file.pwrite(self._view[done : done + count], position)
                done += count
        except DiskFullError:
            self._take_back(pieces)
            raise

    @staticmethod
    def _take_back(pieces: list[tuple[Segment, int, int]]) -> None:
        try:
            for segment, position, count in pieces:
                segment.file.zero(position, position + count)
                # The kernel may have written back the half run already: until the zeros are durable a power cut
                # could bring a refused message back.  Blocks, in a case that allocated segments nearly rule out.
                segment.file.sync_data()
        except DiskFullError:
            # Not even room for zeros (a sparse segment of RocketMQ's): what is left is the beginning of a refused
            # run, above the written mark, and the next append begins at the same place.
            return

    def append_raw(self, data: memoryview, stop: int, entries: list[records.Entry]) -> int:
        """Write records that another log has at this place; the new end.  They lie in one segment.

        stop: where in `data` the records end; what follows is the blank that ends the segment, or nothing.
        """
        start = self.end
        self.segments.ensure(start)
        segment = self.segments.at(start)
        assert start + len(data) <= segment.end, f"{len(data)} bytes at {start} run over the segment's end"
        self._encoded = (0, 0)
        segment.file.pwrite(data, start - segment.start)
        self._active = segment
        self.segments.prepare(segment.end)
        self.end = segment.end if stop < len(data) else start + stop
        self._remember(start, self.end, entries)
        return self.end

    def aligned(self, start: int, end: int, bytes_max: int) -> tuple[int, int]:
        """Where whole records from `start` on end, and where the next ones begin: in one segment, at or below `end`,
        within bytes_max but for the first one.  Of the blank that ends a segment only its two numbers count.
        """
        segment = self.segments.at(start)
        limit = min(end, segment.end)
        if limit == end and limit - start <= bytes_max and end < segment.end:
            return end, end
        base = segment.start
        position, why = records.whole(segment.view, start - base, limit - base, bytes_max)
        at = base + position
        if why == "blank":
            return at + BLANK_BYTES, segment.end
        if why:
            raise CorruptRecordError(f"segment {segment.file.path}: no record at {at}, written up to {end}")
        return at, at

    def is_blank(self, data: memoryview, at: int) -> bool:
        """Whether these are the two numbers that end a segment at this log offset."""
        return len(data) == BLANK_BYTES and _HEAD.unpack(data) == (self._room(at), records.MAGIC_BLANK)

    def resume(self, end: int) -> None:
        """After recovery: go on at end.  On a full disk the segment for it is made by a later append."""
        self.end = end
        try:
            self.segments.ensure(end)
        except DiskFullError:
            return
        self._active = self.segments.at(end)
        self.segments.prepare(self._active.end)

    def record(self, log_offset: int, size: int, end: int) -> records.Record | None:
        """The record that takes exactly these bytes, all below end; None when there is none."""
        if not self.holds(log_offset, size, end):
            return None
        segment = self.segments.at(log_offset)
        at = log_offset - segment.start
        try:
            found = records.view(segment.view, at, at + size)
        except CorruptRecordError:
            return None
        return found if found.log_offset == log_offset and found.size == size else None

    def message(self, log_offset: int, size: int, end: int) -> frames.Send | None:
        """Like `record`, but as a message that can be appended again."""
        if not self.holds(log_offset, size, end):
            return None
        segment = self.segments.at(log_offset)
        at = log_offset - segment.start
        try:
            return halves.message_at(segment.view, at, at + size)
        except CorruptRecordError:
            return None

    def slice(self, log_offset: int, size: int) -> memoryview:
        """Stored bytes that lie in one segment, uncopied."""
        segment = self.segments.at(log_offset)
        at = log_offset - segment.start
        return segment.view[at : at + size]

    def around(self, log_offset: int, end: int) -> tuple[memoryview, int, int]:
        """The segment that holds this offset: memory, log offset of its first byte, and of its end or of `end`.

        Nothing, where that is not there any more.
        """
        if not self.holds(log_offset, 1, end):
            return memoryview(b""), 0, 0
        segment = self.segments.at(log_offset)
        return segment.view, segment.start, min(segment.end, end)

    def pieces(self, places: queues.Places) -> list[memoryview | bytes]:
        """Stored bytes of records, each within a segment: neighbours as one, uncopied; many small ones copied into one.

        A piece of its own costs a view and a place in the system call, which is more than copying a page or two.
        """
        stretches = places.stretches()
        first = self.segments.at(stretches[0][0])
        if len(stretches) > _PIECES_MAX and stretches.total < len(stretches) * _PIECE_BYTES_MIN:
            if stretches[-1][0] < first.end:
                return [stretches.gather(first.view, first.start)]
        return [self.slice(log_offset, size) for log_offset, size in stretches]

    def segment_end(self, offset: int) -> int:
        """Where the segment ends that holds this offset."""
        return offset - offset % self._segment_bytes + self._segment_bytes

    def stretch(self, start: int, end: int) -> tuple[memoryview, int]:
        """Where [start, end) of one segment can be read: (memory, position of start in it).

        What was just written is still in the encode buffer, which costs no page faults.
        """
        if self._encoded[0] <= start and end <= self._encoded[1]:
            return self._view, start - self._encoded[0]
        segment = self.segments.at(start)
        return segment.view, start - segment.start

    def holds(self, log_offset: int, size: int, end: int) -> bool:
        """Whether [log_offset, +size) lies below end and within one segment that is still there."""
        return (
            self.segments.start <= log_offset < self.segments.end
            and 0 < size <= end - log_offset
            and log_offset % self._segment_bytes + size <= self._segment_bytes
        )

    def ready(self, found: Sequence[tuple[int, int, int]], due_ms: int, bytes_max: int, end: int) -> int:
        """How many entries of delayed messages from the first on are due by then and below end."""
        return delays.ready(found, due_ms, bytes_max, self.segments.start, end, self._segment_bytes)

    def good(self, places: queues.Places, end: int) -> int:
        """How many places from the first on lie below end and within one segment that is still there."""
        return places.within(self.segments.start, end, self._segment_bytes)

    def files_between(self, start: int, end: int) -> list[File]:
        """The files to sync so that [start, end) is durable."""
        if self._active is not None and start >= self._active.start:
            return [self._active.file]
        return [segment.file for segment in self.segments.covering(start, end)]

    def rewrite(self, start: int, end: int) -> None:
        """Read [start, end) and write the same bytes again, then sync.

        After a failed fdatasync Linux takes the pages for clean although the disk never got them; only new
        writes make them dirty again.  Every start that does not follow an orderly stop does this with what may
        not have been durable.
        """
        for segment in self.segments.covering(start, end):
            for at in range(max(start, segment.start), min(end, segment.end), _REWRITE_CHUNK_BYTES):
                count = min(_REWRITE_CHUNK_BYTES, min(end, segment.end) - at)
                segment.file.pwrite(segment.file.pread(count, at - segment.start), at - segment.start)
            segment.file.sync_data()

    def prepare(self) -> None:
        """Have the next segment allocated; nothing to do nearly always."""
        if self._active is not None:
            self.segments.prepare(self._active.end)

    def in_memory(self, places: queues.Places | Sequence[tuple[int, int]]) -> bool:
        """Whether these (log offset, size) are in the page cache, so that reading them waits for no disk."""
        segment = self.segments.at(places[0][0])
        if places[-1][0] < segment.end and places[0][0] <= places[-1][0]:
            if isinstance(places, queues.Places):
                places = places.stretches()[:]  # one item for neighbours, not one for each record of a pull
            return in_memory(segment.file, segment.view, segment.start, places, NEAR_BYTES)
        return all(
            in_memory(segment.file, segment.view, 0, [(start, end - start) for start, end in ranges], 0)
            for segment, ranges in self.segments.ranges(places)
        )

    def bring_in(
        self, places: Sequence[tuple[int, int]], reader: Worker, done: Callable[[], None], ahead_bytes: int
    ) -> None:
        """Have the cold reader touch these (log offset, size), neighbours together, then call done."""
        found = self.segments.ranges(places)
        jobs = [reading(segment.file, ranges) for segment, ranges in found[:-1]]
        jobs += [reading(segment.file, ranges, ahead_bytes) for segment, ranges in found[-1:]]

        def job() -> None:
            for read in jobs:
                read()

        if not reader.submit(job, lambda _: done()):
            done()

    def close(self) -> None:
        """Close the files; views that were given out stay valid."""
        self._active = None
        self.segments.close()
