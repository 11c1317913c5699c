"""Which segments go, and when.

Every ten seconds: a segment that was last written longer ago than the reserve goes at the hours set for it,
above the first limit of used disk at any hour; above the second limit the oldest goes whatever its age; above
the third nothing is written any more until there is room.  At most ten at a time, never the one that is
written to, never one that holds something still owed (`owe`: open transactions, messages that are not due yet).
Whoever owes carries on what stands below `carry_below`, so that the segment can go.

A segment goes in this order: the queue-base table knows all its records, durably; the segment leaves the
list, so nobody finds it any more; its file is unlinked; queue and index files that only pointed there follow.
Output that still refers to its map keeps the memory, not the name.  Source of the rules: RocketMQ's
`CleanCommitLogService`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import localtime
from typing import NamedTuple

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.store.background import Worker
from gantry.store.checkpoint import Checkpoint
from gantry.store.commitlog import CommitLog
from gantry.store.derived import Derived
from gantry.store.disk import Disk, unlink_in_order
from gantry.store.logscan import first_record_ms
from gantry.store.segments import Segment
from gantry.store.settings import StoreSettings

_PERIOD_S = 10.0
# While writes are refused somebody waits for room.
_PERIOD_FULL_S = 1.0
_SEGMENTS_MAX = 10


class DiskView(NamedTuple):
    """What a look at the disk saw: share in use, and when the oldest segments were last written."""

    used: float
    modified_ms: tuple[int, ...]


def count_to_drop(seen: DiskView, now_ms: int, is_hour: bool, settings: StoreSettings) -> int:
    """How many of the oldest segments go now."""
    if settings.clean_forcibly and seen.used > settings.disk_used_clean:
        return len(seen.modified_ms)
    if not is_hour and seen.used <= settings.disk_used_max:
        return 0
    for count, modified_ms in enumerate(seen.modified_ms):
        if now_ms - modified_ms < settings.reserved_ms:
            return count
    return len(seen.modified_ms)


class Retention:
    """Loop thread only, but for the look."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        clock: Clock,
        housekeeper: Worker,
        log: CommitLog,
        derived: Derived,
        checkpoint: Checkpoint,
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._housekeeper = housekeeper
        self._log = log
        self._derived = derived
        self._checkpoint = checkpoint
        self._due_s = clock.monotonic()
        self._is_looking = False
        self._any_hour = False
        self._wanted = 0
        self._unlink: list[str] = []
        self.seen = DiskView(0.0, ())
        self._owed: list[Callable[[], int | None]] = []

    @property
    def refuses_writes(self) -> bool:
        """Whether the disk is fuller than writing is allowed."""
        return self.seen.used > self._settings.disk_used_refuse

    def tick(self, durable_end: int, now_ms: int) -> None:
        """Look at the disk when it is time; drop what was found to go and may go."""
        now_s = self._clock.monotonic()
        if now_s >= self._due_s and not self._is_looking:
            oldest = [segment.file.path for segment in self._droppable(durable_end)]
            outcome: list[DiskView] = []
            look = partial(self._look, oldest, outcome)
            self._is_looking = True
            if not self._housekeeper.submit(look, partial(self._looked, outcome, now_ms)):
                self._is_looking = False
        if self._wanted > self._log.start:
            self._drop(min(self._wanted, durable_end))
        self._unlink_dropped()

    def owe(self, since: Callable[[], int | None]) -> None:
        """Keep everything from the log offset on that this tells; None while nothing is owed."""
        self._owed.append(since)

    def owed_from(self) -> int | None:
        """The first log offset that somebody still needs."""
        return min((offset for since in self._owed if (offset := since()) is not None), default=None)

    def carry_below(self) -> int:
        """Below this log offset nothing owed should stay: the oldest segment is about to go.  0: it is not."""
        settings, segments = self._settings, self._log.segments
        end = (self._log.start // settings.segment_bytes + 1) * settings.segment_bytes
        if end + settings.segment_bytes > self._log.end:
            return 0
        is_old = self._clock.now_ms() - first_record_ms(segments.at(self._log.start)) > settings.reserved_ms
        return end if is_old or self.seen.used > settings.disk_used_max else 0

    def drop_expired(self) -> None:
        """Drop what is old enough at the next tick, whatever the hour (an administrator asked)."""
        self._due_s = self._clock.monotonic()
        self._any_hour = True

    def _droppable(self, durable_end: int) -> list[Segment]:
        owed = self.owed_from()
        limit = durable_end if owed is None else min(owed, durable_end)
        return [segment for segment in self._log.segments if segment.end <= limit][:_SEGMENTS_MAX]

    def _look(self, oldest: Sequence[str], outcome: list[DiskView]) -> None:
        total, free = self._disk.usage(self._settings.root)
        modified = tuple(self._disk.modified_ms(path) for path in oldest)
        outcome.append(DiskView(1 - free / total if total else 0.0, modified))

    def _looked(self, outcome: list[DiskView], now_ms: int, error: StoreError | None) -> None:
        self._is_looking = False
        if error is None:
            self.seen = outcome[0]
        self._due_s = self._clock.monotonic() + (_PERIOD_FULL_S if self.refuses_writes else _PERIOD_S)
        if error is not None:
            return
        is_hour = self._any_hour or localtime(now_ms // 1000).tm_hour in self._settings.delete_hours
        self._any_hour = False
        count = count_to_drop(self.seen, now_ms, is_hour, self._settings)
        if count:
            self._wanted = self._log.start + count * self._settings.segment_bytes

    def _drop(self, until: int) -> None:
        if self._checkpoint.base_log_offset < until:
            self._checkpoint.want_base()
            return
        for segment in self._log.segments.take_before(until):
            segment.close()
            self._unlink.append(segment.file.path)
        self._derived.index.drop_before(self._log.start)
        self._unlink += self._derived.table.drop_before(self._log.start)
        # A start compares with the table where each queue's files begin.
        self._checkpoint.want_base()
        self._wanted = 0

    def _unlink_dropped(self) -> None:
        paths, self._unlink = self._unlink, []
        if paths and not self._housekeeper.submit(partial(self._unlink_all, paths), partial(self._unlinked, paths)):
            self._unlink = paths

    def _unlink_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            unlink_in_order(self._disk, path)

    def _unlinked(self, paths: Sequence[str], error: StoreError | None) -> None:
        if error is not None:
            # Again, from the first on: what is gone already does not matter.
            self._unlink = [*paths, *self._unlink]
