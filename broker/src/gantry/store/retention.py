"""Retention: which segments are removed, and when.

Every ten seconds the oldest segments are looked at, at most ten, and it is decided how many go (`count_to_drop`):
those that were last written longer ago than the reserve, at the hours set for it, or at any hour when the disk is
fuller than the first limit or an administrator asked; above the second limit as many of the oldest, whatever their age,
as bring the disk below it.  When nearly all of those was owed, and so was copied, nothing is removed by force for ten
minutes.  Above the third limit nothing is written any more until there is room, but for what is owed.

Not removed: the segment that is written to, segments that are not flushed and dispatched, and segments with records
that are still owed (`owe`: open transactions, messages that are not due yet).  Their owners copy records below
`carry_below` to the log's end, so that the segment can be removed; until then it stays, also on a full disk.
`dropping` describes how a segment is removed.  Source of the rules: RocketMQ's `CleanCommitLogService`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from math import ceil
from time import localtime
from typing import NamedTuple

from gantry.clock import SteadyClock
from gantry.errors import StoreError
from gantry.store.background import Worker
from gantry.store.commitlog import CommitLog
from gantry.store.disk import Disk
from gantry.store.dropping import Dropping
from gantry.store.segmentages import SegmentAges
from gantry.store.settings import StoreSettings

_PERIOD_S = 10.0
# Shorter while writes are refused, because producers wait for room.
_PERIOD_FULL_S = 1.0
SEGMENTS_MAX = 10
# RocketMQ's MAX_MANUAL_DELETE_FILE_TIMES: so many passes at any hour follow an administrator's request.
_PASSES_BY_HAND = 20
# Forced removal gains nothing where nearly all that goes is copied to the log's end; then it pauses.
_FUTILE_SHARE = 0.9
_FUTILE_S = 600.0


class _Looked(NamedTuple):
    """What the housekeeper found: share of the disk in use, its bytes, and when files were written last."""

    used: float
    total_bytes: int
    modified_ms: dict[str, int]


class DiskView(NamedTuple):
    """State of the disk: share in use, when the oldest segments were last written, bytes of the disk."""

    used: float
    modified_ms: tuple[int, ...]
    total_bytes: int = 0


class RetentionStatus(NamedTuple):
    """Retention's state for an administrator; segments that may be removed by their place, oldest first."""

    seen: DiskView
    log_start: int
    owed_from: int | None
    expired: int  # how many of them are old enough
    going: int  # how many go at the next pass, whatever is owed


def expired_count(seen: DiskView, now_ms: int, settings: StoreSettings) -> int:
    """How many of the oldest segments are old enough."""
    return sum(1 for _ in takewhile(lambda at_ms: now_ms - at_ms >= settings.reserved_ms, seen.modified_ms))


def count_to_drop(seen: DiskView, now_ms: int, is_hour: bool, settings: StoreSettings) -> int:
    """How many of the oldest segments go now."""
    count = expired_count(seen, now_ms, settings) if is_hour or seen.used > settings.disk_used_max else 0
    if settings.clean_forcibly and seen.used > settings.disk_used_clean:
        excess_bytes = (seen.used - settings.disk_used_clean) * seen.total_bytes
        count = max(count, 1, ceil(excess_bytes / settings.segment_bytes))
    return min(count, len(seen.modified_ms))


class Retention:
    """Loop thread only, but for the look."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        clock: SteadyClock,
        housekeeper: Worker,
        log: CommitLog,
        dropping: Dropping,
    ) -> None:
        self.seen = DiskView(0.0, ())
        self.dropping = dropping
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._housekeeper = housekeeper
        self._log = log
        self._due_s = clock.monotonic()
        self._is_looking = False
        self._by_hand = 0  # passes at any hour that are left of an administrator's request
        self._wanted = 0  # what ends up to here is to go
        self._owed: list[Callable[[], int | None]] = []
        self._ages = SegmentAges(clock)
        self.carried_bytes = 0  # copied to the log's end, and
        self._dropped_bytes = 0  # removed, since the last forced removal began
        self._futile_until_s = 0.0

    @property
    def refuses_writes(self) -> bool:
        """Whether the disk is fuller than writing is allowed."""
        return self.seen.used > self._settings.disk_used_refuse

    @property
    def waiting(self) -> int:
        """How many segments are to go and have not gone yet."""
        return max(0, self._wanted - self._log.start) // self._settings.segment_bytes

    def tick(self, durable_end: int, now_ms: int) -> None:
        """Look at the disk when it is time; drop what is to go and may go."""
        if self._clock.monotonic() >= self._due_s and not self._is_looking:
            outcome: list[_Looked] = []
            self._is_looking = True
            durable = self._durable(durable_end)
            oldest = durable[:SEGMENTS_MAX]
            paths = [*oldest, *self._ages.unseen(durable[SEGMENTS_MAX:])]
            self._ages.keep(durable)
            looked = partial(self._looked, outcome, oldest, now_ms)
            if not self._housekeeper.submit(partial(self._look, paths, outcome), looked):
                self._is_looking = False
        if self._wanted > self._log.start:
            self._drop(durable_end)
        self.dropping.tick()

    def owe(self, since: Callable[[], int | None]) -> None:
        """Keep everything from the log offset on that this tells; None while nothing is owed."""
        self._owed.append(since)

    def owed_from(self) -> int | None:
        """Return the lowest log offset that is still owed; None when nothing is."""
        return min((offset for since in self._owed if (offset := since()) is not None), default=None)

    def carry_below(self) -> int:
        """Below this log offset nothing owed should stay: these segments are about to go.  0: none is."""
        return self._wanted if self._wanted > self._log.start else 0

    def drop_expired(self) -> None:
        """Drop what is old enough from the next tick on, whatever the hour (an administrator asked)."""
        self._due_s = self._clock.monotonic()
        self._by_hand = _PASSES_BY_HAND

    def drop_queue_files(self) -> None:
        """Drop queue and index files of which all records are gone; they went with their segments already."""
        self.dropping.drop_derived()

    def survey(self, durable_end: int, done: Callable[[RetentionStatus | None], None]) -> None:
        """Look at the disk and tell what would go by hand now; None when that was not possible."""
        outcome: list[_Looked] = []
        paths = self._durable(durable_end)

        def looked(error: StoreError | None) -> None:
            if error is not None:
                done(None)
                return
            now_ms = self._clock.wall_ms()
            seen = self._view(outcome[0], paths, now_ms)
            expired = expired_count(seen, now_ms, self._settings)
            going = count_to_drop(seen, now_ms, True, self._settings)
            by_disk = seen._replace(modified_ms=tuple(outcome[0].modified_ms.values()))
            done(RetentionStatus(by_disk, self._log.start, self.owed_from(), expired, going))

        if not self._housekeeper.submit(partial(self._look, paths, outcome), looked):
            done(None)

    def _durable(self, durable_end: int) -> list[str]:
        """Return the segments that may go by their place, the oldest first."""
        return [segment.file.path for segment in self._log.segments if segment.end <= durable_end]

    def _look(self, paths: Sequence[str], outcome: list[_Looked]) -> None:
        total, free = self._disk.usage(self._settings.root)
        modified_ms = {path: self._disk.modified_ms(path) for path in paths}
        outcome.append(_Looked(1 - free / total if total else 0.0, total, modified_ms))

    def _looked(
        self, outcome: list[_Looked], oldest: Sequence[str], now_ms: int, error: StoreError | None
    ) -> None:
        self._is_looking = False
        if error is None:
            self.seen = self._view(outcome[0], oldest, now_ms)
        self._due_s = self._clock.monotonic() + (_PERIOD_FULL_S if self.refuses_writes else _PERIOD_S)
        if error is not None:
            return
        is_hour = self._by_hand > 0 or localtime(now_ms // 1000).tm_hour in self._settings.delete_hours
        count = count_to_drop(self.seen, now_ms, is_hour, self._settings)
        expired = expired_count(self.seen, now_ms, self._settings)
        if count > expired:
            count = self._forced(count) or (expired if is_hour or self.seen.used > self._settings.disk_used_max else 0)
        self._by_hand = max(self._by_hand - 1, 0) if count else 0
        self._wanted = self._log.start + count * self._settings.segment_bytes if count else 0

    def _view(self, found: _Looked, oldest: Sequence[str], wall_ms: int) -> DiskView:
        """Return the view with times of writing that are as long ago as they are, whatever the wall clock did."""
        self._ages.note(found.modified_ms, wall_ms)
        written = [self._ages.written_ms(path, wall_ms) for path in oldest]
        return DiskView(found.used, tuple(written), found.total_bytes)

    def _forced(self, count: int) -> int:
        """Return how many of the oldest go whatever their age; 0 for a while after that gained nothing."""
        if self._wanted > self._log.start:
            return count  # the last ones are still going
        now_s = self._clock.monotonic()
        if self._dropped_bytes and self.carried_bytes > _FUTILE_SHARE * self._dropped_bytes:
            self._futile_until_s = now_s + _FUTILE_S
        self._dropped_bytes = self.carried_bytes = 0
        return 0 if now_s < self._futile_until_s else count

    def _drop(self, durable_end: int) -> None:
        end = self._log.start + self._settings.segment_bytes
        owed = self.owed_from()
        if end > min(self._wanted, durable_end) or (owed is not None and owed < end):
            return
        self._dropped_bytes += self._settings.segment_bytes
        self.dropping.drop_first()
        if self._by_hand and self._log.start >= self._wanted:
            # After an administrator's request the next pass does not wait for the period, as long as there is more.
            self._due_s = self._clock.monotonic()
