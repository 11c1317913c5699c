"""The files of the log: equal in size, without gaps, named by the log offset of their first byte.

The active segment is the last one with records; behind it stands the next one, allocated ahead by the
housekeeper so that rolling is a pointer move.  A segment gets its name only when all its blocks are reserved
and synced, so a full disk shows when a segment is made, never in the middle of one (on file systems that
write in place), and never as a dead process.

A segment that is dropped is unlinked at once; output that still refers to its map keeps the memory until it
is sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from struct import Struct

from gantry.clock import Clock
from gantry.errors import DiskFullError, StoreError
from gantry.leaves import records
from gantry.store import filenames
from gantry.store.background import Worker
from gantry.store.disk import Disk, File

# After a failed allocation appends are refused for this long without trying: on some file systems an
# allocation that fails takes seconds of walking over block groups first.
_RETRY_S = 1.0
# What lies between two records is read with them if it is no more: one read of a disk instead of two.
NEAR_BYTES = 16 << 10
# Of a record's head (`leaves.records`): log offset and flags, and behind the producer's address the store time.
_HEAD = Struct(">28xqi")
_STORED_AT, _STORED_AT_V6 = 56, 68
_TIME = Struct(">q")


class Segment:
    """One file of the log."""

    __slots__ = ("_view", "end", "file", "start")

    def __init__(self, start: int, end: int, file: File) -> None:
        self.start = start
        self.end = end
        self.file = file
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """All its bytes, read-only; mapped at the first use."""
        if self._view is None:
            self._view = self.file.map()
        return self._view

    def close(self) -> None:
        """Close the file; views that were given out stay valid."""
        self._view = None
        self.file.close()

    def release(self) -> Callable[[], bool]:
        """Close the file for good; return a function that says whether views of it are still in use."""
        is_used = (lambda: False) if self._view is None else _usage_of(self._view)
        self.close()
        return is_used


def _usage_of(view: memoryview) -> Callable[[], bool]:
    """Return a function that says whether this view's memory is still referred to; it holds no reference itself."""
    try:
        memory = weakref.ref(view.obj)
    except TypeError:  # memory of the interpreter, which keeps no disk space in use
        return lambda: False
    return lambda: memory() is not None


def _read_stored_ms(segment: Segment, found: list[int]) -> None:
    """Put the store time of a segment's first record into `found`, if it begins with one; the housekeeper's job."""
    head = segment.file.pread(_STORED_AT_V6 + _TIME.size, 0)
    if len(head) < _STORED_AT_V6 + _TIME.size:
        return
    log_offset, flags = _HEAD.unpack_from(head)
    if log_offset == segment.start and any(head[:4]):
        found[0] = _TIME.unpack_from(head, _STORED_AT_V6 if flags & records.SYS_BORN_HOST_V6 else _STORED_AT)[0]


def create_segment(disk: Disk, root: str, start: int, segment_bytes: int) -> None:
    """Make a zeroed segment of full size appear under its name, or leave nothing behind."""
    unfinished = filenames.new_segment(root)
    disk.unlink(unfinished)
    file = disk.open(unfinished, create=True)
    try:
        file.allocate(segment_bytes)
        file.sync_data()
    except StoreError:
        file.close()
        disk.unlink(unfinished)
        raise
    file.close()
    disk.rename(unfinished, filenames.by_offset(filenames.commit_log(root), start))
    disk.sync_folder(filenames.commit_log(root))


class Segments:
    """The log's files in order.  Loop thread only; the housekeeper creates and unlinks for it."""

    def __init__(self, disk: Disk, root: str, segment_bytes: int, clock: Clock, housekeeper: Worker) -> None:
        self._disk = disk
        self._root = root
        self._bytes = segment_bytes
        self._clock = clock
        self._housekeeper = housekeeper
        self._list: list[Segment] = []
        self._ahead_start = -1
        self._refuse_until_s = 0.0
        self._oldest: tuple[int, int] | None = None  # a first segment, and when its first record was stored
        self._oldest_wanted = -1  # the segment that the housekeeper looks at
        self.is_short = False  # the last segment that was wanted found no room
        self.failed: StoreError | None = None

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def load(self) -> None:
        """Find the files; StoreError when sizes or names do not fit, because offsets would be misread."""
        folder = filenames.commit_log(self._root)
        found = [start for name in self._disk.list(folder) if (start := filenames.parse_offset(name)) is not None]
        for start in found:
            path = filenames.by_offset(folder, start)
            file = self._disk.open(path, create=False)
            size = file.size()
            if size == 0 and start == found[-1]:
                # RocketMQ does the same: killed between creating a file and sizing it.
                file.close()
                self._disk.unlink(path)
                self._disk.sync_folder(folder)
                break
            if size != self._bytes:
                raise StoreError(
                    f"segment {path} has {size} bytes, expected {self._bytes}; "
                    "set store.segment_bytes (mappedFileSizeCommitLog) to the size this store was written with"
                )
            if start % self._bytes or (self._list and start != self._list[-1].end):
                expected = self._list[-1].end if self._list else start - start % self._bytes
                raise StoreError(f"segment {path} found where offset {expected} should begin; restore the missing file")
            self._list.append(Segment(start, start + self._bytes, file))

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return self._list[0].start if self._list else 0

    @property
    def end(self) -> int:
        """Where the last file ends, empty ones included."""
        return self._list[-1].end if self._list else 0

    def at(self, offset: int) -> Segment:
        """The segment that holds this offset, which must be there."""
        return self._list[(offset - self._list[0].start) // self._bytes]

    def ranges(self, places: Iterable[tuple[int, int]]) -> list[tuple[Segment, list[tuple[int, int]]]]:
        """Where these (log offset, size) stand, by segment, as [start, end) in its file; what is near is one range."""
        found: list[tuple[Segment, list[tuple[int, int]]]] = []
        segment, begin, reach = None, 0, -1
        for log_offset, size in places:
            if segment is not None and begin <= log_offset <= reach + NEAR_BYTES and log_offset < segment.end:
                reach = max(reach, log_offset + size)
                found[-1][1][-1] = begin - segment.start, reach - segment.start
                continue
            if segment is None or not segment.start <= log_offset < segment.end:
                segment = self.at(log_offset)
                found.append((segment, []))
            begin, reach = log_offset, log_offset + size
            found[-1][1].append((begin - segment.start, reach - segment.start))
        return found

    def oldest_ms(self) -> int:
        """When the first record was stored, -1 while that is not known.

        The housekeeper reads it, because an old segment is rarely in memory; until then it is that of the segment that
        was the first one before.
        """
        if self._list and (self._oldest is None or self._oldest[0] != self.start) and self._oldest_wanted != self.start:
            segment, found = self._list[0], [-1]
            self._oldest_wanted = segment.start
            job = partial(_read_stored_ms, segment, found)
            if not self._housekeeper.submit(job, partial(self._oldest_read, segment.start, found)):
                self._oldest_wanted = -1
        return -1 if self._oldest is None else self._oldest[1]

    def _oldest_read(self, start: int, found: list[int], error: StoreError | None) -> None:
        self._oldest_wanted = -1
        if error is None and found[0] >= 0:  # else the segment has gone, or its first record is still to come
            self._oldest = start, found[0]

    def covering(self, start: int, end: int) -> list[Segment]:
        """Those that hold a byte of [start, end)."""
        return [segment for segment in self._list if segment.start < end and segment.end > start]

    def ensure(self, offset: int) -> None:
        """Make the segments up to the one that holds offset exist.  Blocks when the housekeeper was too slow.

        DiskFullError when there is no room; tried again at most once a second.
        """
        if self._list and offset < self.end:
            return
        self._housekeeper.drain()
        while not self._list or offset >= self.end:
            if self._clock.monotonic() < self._refuse_until_s:
                raise DiskFullError("no room for the next segment of the log")
            start = self.end if self._list else offset - offset % self._bytes
            try:
                create_segment(self._disk, self._root, start, self._bytes)
            except DiskFullError:
                self._found_no_room()
                raise
            self._adopt(start)

    def prepare(self, active_end: int) -> None:
        """Have the segment that follows active_end allocated by the housekeeper; at most one at a time."""
        if (
            self.end > active_end
            or self._ahead_start == active_end
            or self.failed
            or self._clock.monotonic() < self._refuse_until_s
        ):
            return
        self._ahead_start = active_end
        job = partial(create_segment, self._disk, self._root, active_end, self._bytes)
        if not self._housekeeper.submit(job, partial(self._prepared, active_end), first=True):
            self._ahead_start = -1

    def _prepared(self, start: int, error: StoreError | None) -> None:
        self._ahead_start = -1
        if error is None:
            self._adopt(start)
        elif isinstance(error, DiskFullError):
            self._found_no_room()
        else:
            self.failed = error

    def _found_no_room(self) -> None:
        self.is_short = True
        self._refuse_until_s = self._clock.monotonic() + _RETRY_S

    def _adopt(self, start: int) -> None:
        assert not self._list or start == self._list[-1].end, f"segment {start} behind {self.end}"
        file = self._disk.open(filenames.by_offset(filenames.commit_log(self._root), start), create=False)
        self._list.append(Segment(start, start + self._bytes, file))
        self.is_short = False

    def cut(self, offset: int) -> None:
        """Take everything from offset on out of the files: only before the first append after a start.

        Later segments are deleted; the rest of this one is zeroed, not just the next header: a power cut that
        keeps any subset of pages would bring an old record back behind a newer one.
        """
        folder = filenames.commit_log(self._root)
        later = [segment for segment in self._list if segment.start >= offset]
        for segment in reversed(later):
            segment.close()
            self._disk.unlink(segment.file.path)
            # One by one: of several removals a power cut may keep any, and a gap is a missing segment.
            self._disk.sync_folder(folder)
        if later:
            self._list = self._list[: -len(later)]
        if self._list and offset < self.end:
            last = self._list[-1]
            last.file.zero(offset - last.start, self._bytes)
            last.file.sync_data()

    def take_before(self, offset: int) -> list[Segment]:
        """Forget whole segments below offset and hand them over for unlinking; the last one always stays."""
        count = sum(1 for segment in self._list[:-1] if segment.end <= offset)
        taken, self._list = self._list[:count], self._list[count:]
        return taken

    def close(self) -> None:
        """Close all segments; views that were given out stay valid."""
        for segment in self._list:
            segment.close()
        self._list = []
