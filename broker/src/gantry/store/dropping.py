"""Dropping segments: one at a time, in an order in which no crash causes a gap, or offsets that are given twice.

    1. the queue-base table knows all its records, durably; it comes with a checkpoint, and by itself where a checkpoint
       finds no room: a new index file is larger than any reserve
    2. it is removed from the list of segments, so that it is not read any more
    3. its file is unlinked, and so are the queue files of which all records are gone; the name is durable before the
       next one is removed; index files follow with a checkpoint

Output that waits in a socket still refers to the segment's map, and as long as it does the disk does not get the room
back.  Such a segment *lingers*.  `on_lingering` is called with its first offset at once, `on_hung` when it still does
after two minutes (RocketMQ's destroyMapedFileIntervalForcibly), so that the reader's output can be discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.store import queuebase
from gantry.store.background import Worker, reading
from gantry.store.checkpoint import Checkpoint
from gantry.store.coldrange import ColdRange
from gantry.store.commitlog import CommitLog
from gantry.store.derived import Derived
from gantry.store.disk import Disk, unlink_in_order
from gantry.store.queuebase import QueueBase

# RocketMQ's deleteCommitLogFilesInterval: the disk has other work than to unlink gigabytes.
INTERVAL_S = 0.1
HANG_S = 120.0


class _Lingering(NamedTuple):
    start: int
    hung_at_s: float
    is_used: Callable[[], bool]


class Dropping:
    """Loop thread only, but for the unlinking."""

    def __init__(
        self, disk: Disk, clock: Clock, housekeeper: Worker, log: CommitLog, derived: Derived, checkpoint: Checkpoint
    ) -> None:
        self.segments = 0  # dropped so far
        self._disk = disk
        self._clock = clock
        self._housekeeper = housekeeper
        self._log = log
        self._derived = derived
        self._checkpoint = checkpoint
        self._next_s = clock.monotonic()
        self._base_end = 0  # what a table that was written by itself knows
        self._is_saving = False
        self._walk: Iterator[QueueBase | None] | None = None  # over the queues, before the job
        self._unlink: list[str] = []
        self._search: Iterator[list[str] | ColdRange] | None = None
        self._is_search_due = False
        self._is_reading = False  # what the search is going to look at
        self._lingering: list[_Lingering] = []
        self._on_lingering: Callable[[int], None] = lambda start: None
        self._on_hung: Callable[[int], None] = lambda start: None

    @property
    def lingering(self) -> int:
        """How many dropped segments are still referred to by waiting output."""
        return len(self._lingering)

    @property
    def is_pending(self) -> bool:
        """Whether files of dropped segments are still to be removed, or the table that allows it to be written."""
        return bool(self._unlink) or self.is_saving

    def listen(self, on_lingering: Callable[[int], None], on_hung: Callable[[int], None]) -> None:
        """Register listeners for dropped segments that are still read: called with the first offset, see the module."""
        self._on_lingering, self._on_hung = on_lingering, on_hung

    def drop_first(self) -> None:
        """Drop the oldest segment, if the interval is over and the queue-base table is far enough."""
        now_s = self._clock.monotonic()
        first = next(iter(self._log.segments))
        if now_s < self._next_s:
            return
        if max(self._checkpoint.base_log_offset, self._base_end) < first.end:
            self._checkpoint.want_base()
            if self._checkpoint.is_short:
                self._save_base(first.end)
            return
        for segment in self._log.segments.take_before(first.end):
            self._next_s = now_s + INTERVAL_S
            self.segments += 1
            is_used = segment.release()
            self._unlink.append(segment.file.path)
            if is_used():
                self._lingering.append(_Lingering(segment.start, now_s + HANG_S, is_used))
                self._on_lingering(segment.start)
        self.drop_derived()

    def go_on(self) -> bool:
        """One slice of the table that is made for a segment; whether there is another one to do now."""
        if self._walk is None:
            return False
        base = next(self._walk)
        if base is None:
            return True
        self._walk = None
        job = partial(self._checkpoint.reserve.carry_out, partial(self._write_base, base))
        self._is_saving = True
        if not self._housekeeper.submit(job, partial(self._base_saved, base.log_offset)):
            self._is_saving = False
        return False

    @property
    def is_saving(self) -> bool:
        """Whether the table is being made or written: meanwhile no checkpoint may begin, which writes a newer one."""
        return self._is_saving or self._walk is not None

    def _save_base(self, end: int) -> None:
        """Only the table, for a start that finds queue files without the segment's last entries to fill them up."""
        if self.is_saving or self._checkpoint.is_running:
            return
        self._walk = self._derived.table.base(end)
        self.go_on()

    def _write_base(self, base: QueueBase) -> None:
        queuebase.save(self._disk, self._derived.root, base)

    def _base_saved(self, end: int, error: StoreError | None) -> None:
        self._is_saving = False
        if error is None:
            self._base_end = end

    def drop_derived(self) -> None:
        """Drop queue and index files of which all records are gone."""
        self._derived.index.drop_before(self._log.start)
        if self._search is None:
            self._search = self._derived.table.drop_before(self._log.start)
        else:
            self._is_search_due = True
        self._search_on()

    def _search_on(self) -> None:
        """One slice of the search for queue files of which all records are gone."""
        if self._search is None or self._is_reading:
            return
        found = next(self._search, None)
        if isinstance(found, ColdRange):
            self._is_reading = True
            job = reading(found.file, ((found.start, found.end),))
            if not self._housekeeper.submit(job, self._is_read):
                self._is_reading = False
            return
        if found is not None:
            self._unlink += found
            # A start compares with the table where each queue's files begin.
            self._checkpoint.want_base()
            return
        self._search = None
        if self._is_search_due:
            # The log was cut again meanwhile.
            self._is_search_due = False
            self._search = self._derived.table.drop_before(self._log.start)

    def _is_read(self, error: StoreError | None) -> None:
        self._is_reading = False

    def tick(self) -> None:
        """Look for queue files that go too, unlink the files of dropped segments, and check which segments linger."""
        self._search_on()
        paths, self._unlink = self._unlink, []
        if paths and not self._housekeeper.submit(partial(self._unlink_all, paths), partial(self._unlinked, paths)):
            self._unlink = paths
        if self._lingering:
            self._look_at_lingering()

    def _look_at_lingering(self) -> None:
        now_s = self._clock.monotonic()
        kept = []
        for one in self._lingering:
            if not one.is_used():
                continue
            if now_s < one.hung_at_s:
                kept.append(one)
                continue
            # Called again every two minutes: one call may not have closed every connection that holds the segment.
            kept.append(one._replace(hung_at_s=now_s + HANG_S))
            self._on_hung(one.start)
        self._lingering = kept

    def _unlink_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            unlink_in_order(self._disk, path)

    def _unlinked(self, paths: Sequence[str], error: StoreError | None) -> None:
        if error is not None:
            # Again, from the first on: what is gone already does not matter.
            self._unlink = [*paths, *self._unlink]
