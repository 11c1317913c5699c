"""Opening a store: what the folder holds, who wrote it last, and which part can be trusted.

    CLEAN            we stopped it in order: nothing to read
    CRASHED          we did not: read the log from the recovery point
    FOREIGN_CLEAN    RocketMQ's broker wrote last and stopped in order: its rule, from the last queue entry's segment
    FOREIGN_CRASHED  it did not: its rule, from the segment that its checkpoint trusts

The steps, numbered as in broker/docs/store.md:

    1. lock; find out who wrote last         5. cut the log behind its last good record
    2. open segments                         6. write the doubtful tail again and sync it
    3. open queues and index                 7. build queues again that lack entries, clamp those that have too many
    4. read the log and dispatch it          8. write `abort`, allocate ahead, make a checkpoint

Every step may be interrupted by another crash: until step 8 nothing refers to the recovered state, and
repeating the steps gives the same result.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from gantry.clock import SteadyClock
from gantry.errors import DiskFullError, StoreError
from gantry.store import filenames, foreign, generations, javacheckpoint, queuebase, recoverypoint, reviving
from gantry.store.background import Background
from gantry.store.checkpoint import Checkpoint
from gantry.store.commitlog import CommitLog
from gantry.store.derived import Derived
from gantry.store.disk import Disk, FileLock
from gantry.store.javacheckpoint import JavaCheckpoint
from gantry.store.logscan import LogScan, first_record_ms
from gantry.store.queuebase import QueueBase
from gantry.store.recoverypoint import RecoveryPoint
from gantry.store.segments import Segments
from gantry.store.settings import StoreSettings


class Start(enum.Enum):
    """Who wrote last, and whether it stopped in order."""

    CLEAN = "clean"
    CRASHED = "crashed"
    FOREIGN_CLEAN = "foreign, clean"
    FOREIGN_CRASHED = "foreign, crashed"

    @property
    def is_ours(self) -> bool:
        """Whether the recovery point speaks of what is in the folder."""
        return self in (Start.CLEAN, Start.CRASHED)

    @property
    def is_crash(self) -> bool:
        """Whether what was not durable may be gone."""
        return self in (Start.CRASHED, Start.FOREIGN_CRASHED)


class RecoveryProgress(NamedTuple):
    """How far a start has come, for /healthz."""

    stage: str
    at: int
    end: int


@dataclass(slots=True)
class RecoveryReport:
    """What a start found and did."""

    start: Start = Start.CLEAN
    scanned_from: int = 0
    records: int = 0
    end: int = 0
    reason: str = ""
    rebuilt: list[str] = field(default_factory=list)


class StoreParts(NamedTuple):
    """An opened store's parts, for `Store`."""

    settings: StoreSettings
    disk: Disk
    clock: SteadyClock
    background: Background
    lock: FileLock | None  # None: the caller that opened the store holds it
    log: CommitLog
    derived: Derived
    checkpoint: Checkpoint
    store_ms: int
    confirmed: int  # queues and index know the log up to here
    report: RecoveryReport


class _Found(NamedTuple):
    """The contents of the small files: recovery point, checkpoint, tables."""

    start: Start
    point: RecoveryPoint | None
    java: JavaCheckpoint
    base: QueueBase


class Recovery:
    """One opening of a store's folder."""

    def __init__(
        self, settings: StoreSettings, disk: Disk, clock: SteadyClock, background: Background, is_locked: bool = False
    ) -> None:
        self._settings = settings
        self._is_locked = is_locked
        self._disk = disk
        self._clock = clock
        self._background = background
        segments = Segments(disk, settings.root, settings.segment_bytes, clock, background.housekeeper)
        self._log = CommitLog(segments, settings.segment_bytes)
        self._derived = Derived(settings, disk, clock, self._log)
        self._lock: FileLock | None = None
        self._lives_found: dict[str, int] = {}  # the generations as they stand in their file
        self._revived: list[str] = []  # topics whose queues are built again from the whole log, in another life
        self.report = RecoveryReport(rebuilt=self._derived.rebuilt)
        self.parts: StoreParts | None = None

    def steps(self) -> Iterator[RecoveryProgress]:
        """Open the store in slices of some milliseconds.  StoreError: the folder cannot be opened, and why."""
        yield RecoveryProgress("lock", 0, 0)
        self._make_names_durable()
        if not self._is_locked:
            self._lock = self._disk.lock(filenames.lock(self._settings.root))
        found = self._look()
        segments = self._log.segments
        segments.load()
        self._check_folder(found)
        found = self._without_deleted(found)
        yield RecoveryProgress("queues", 0, 0)
        begin = self._load_derived(found)
        scan = LogScan(segments, begin, _torn_from(found, begin))
        confirmed = self._confirmed(found)
        for at in self._derived.dispatch(scan, confirmed):
            yield RecoveryProgress("log", at, segments.end)
        self._note(found.start, begin, scan)
        self._judge(found, scan)
        if found.start is not Start.CLEAN or scan.count or scan.reason.startswith("bad"):
            yield RecoveryProgress("cut", scan.at, scan.at)
            self._cut(found, begin, scan)
        confirmed = min(confirmed, scan.at)
        for at in self._derived.repair(confirmed):
            yield RecoveryProgress("rebuild", at, scan.at)
        for _ in self._derived.index.read_slots():
            yield RecoveryProgress("index", scan.at, scan.at)
        yield RecoveryProgress("finish", scan.at, scan.at)
        self._finish(found, confirmed, max(scan.store_ms, found.point.store_ms if found.point else 0))

    def close(self) -> None:
        """Close the files and release the folder's lock when the steps were not completed."""
        if self.parts is None:
            self._background.housekeeper.drain()
            self._log.close()
            self._derived.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _make_names_durable(self) -> None:
        """Make the folders, and sync names that a process made before it died without syncing them.

        Their files exist and are going to be used, but a power cut could still remove the names.
        """
        root = self._settings.root
        for folder in (filenames.commit_log(root), filenames.ours(root)):
            self._disk.make_folders(folder)
        for folder in (root, filenames.commit_log(root), filenames.ours(root), filenames.index(root)):
            if self._disk.exists(folder):
                self._disk.sync_folder(folder)

    def _look(self) -> _Found:
        disk, root = self._disk, self._settings.root
        java = javacheckpoint.load(disk, root) or JavaCheckpoint()
        point = recoverypoint.load(disk, root)
        base = queuebase.load(disk, root)
        lives = self._derived.table.generations = generations.load(disk, root)
        self._lives_found = lives.all()
        self._revived = reviving.carry_out(disk, root, lives)
        base = queuebase.without(base, [*self._revived, *lives.newer_than(base)])
        self._derived.rebuilt += self._revived
        # Our own folder may have been thrown away with the rest of what is derived, or be older by a deletion.
        base = base._replace(gravestones=base.gravestones | lives.gravestones())
        has_abort = disk.exists(filenames.abort(root))
        if point is None or not point.is_last_word(java.longs) or foreign.has_opened(disk, root):
            start = Start.FOREIGN_CRASHED if has_abort else Start.FOREIGN_CLEAN
        else:
            start = Start.CRASHED if has_abort or not point.clean else Start.CLEAN
        return _Found(start, point, java, base)

    def _check_folder(self, found: _Found) -> None:
        segments, root, point = self._log.segments, self._settings.root, found.point
        if point is None or not found.start.is_ours:
            if len(segments) == 0:
                # RocketMQ does the same: without a log there is nothing for queues to point at.
                self._disk.remove_tree(filenames.consume_queues(root))
                self._disk.remove_tree(filenames.index(root))
            return
        if point.sizes != self._settings.sizes:
            raise StoreError(
                f"{root} was written with the sizes {point.sizes} (bytes of a segment, entries of a queue file, "
                f"slots and entries of an index), the settings say {self._settings.sizes}; set what it was written with"
            )
        if point.flushed > segments.end:
            raise StoreError(
                f"{filenames.commit_log(root)} ends at {segments.end}, but was durable up to {point.flushed}; "
                "restore the missing segments"
            )

    def _without_deleted(self, found: _Found) -> _Found:
        """Bury the topics that RocketMQ's broker deleted."""
        if found.start.is_ours:
            return found
        table, base = self._derived.table, found.base
        disk, root = self._disk, self._settings.root
        listed = foreign.listed_topics(disk, root)
        is_deleted = partial(foreign.is_deleted, disk, root, listed.topics)
        deleted = [topic for topic in base.ends if is_deleted(topic)]
        for topic in deleted:
            table.bury(topic, self._log.segments.end)  # clipped to where the log is found to end
        if found.start is Start.FOREIGN_CLEAN:
            self._derived.derivation.is_deleted = is_deleted
        if found.point is None or found.point.clean:
            self._derived.listed = listed
        base = queuebase.without(base, deleted)
        return found._replace(base=base._replace(gravestones=base.gravestones | table.gravestones))

    def _load_derived(self, found: _Found) -> int:
        """Open queues and index; the log offset from which the log must be dispatched to complete them."""
        derived, log_start, point = self._derived, self._log.start, found.point
        if point is not None and found.start.is_ours:
            has_queues = derived.load_queues(point.dispatched, False, found.base)
            has_index = derived.load_index(point.index, point.dispatched)
            has_all = has_queues and has_index and not self._revived
            return max(point.dispatched, log_start) if has_all else log_start
        is_crashed = found.start is Start.FOREIGN_CRASHED
        has_queues = derived.load_queues(None, is_crashed, found.base)
        index = derived.index
        index.load_foreign(found.java.index_ms if is_crashed else None)
        # After a crash the newest record may have only some of its keys in; it is added again.
        index.position = max(index.end_log + (0 if is_crashed else 1), 0)
        starts = [segment.start for segment in self._log.segments if segment.start <= index.end_log]
        if not has_queues or not starts or self._revived:
            return log_start
        return min(self._trusted_start(is_crashed, found.java), starts[-1])

    def _trusted_start(self, is_crashed: bool, java: JavaCheckpoint) -> int:
        """Where RocketMQ's broker would begin to read (`CommitLog.recoverNormally`, `recoverAbnormally`)."""
        segments = self._log.segments
        if is_crashed:
            trusted = [s.start for s in segments if 0 < first_record_ms(s) <= java.trusted_ms]
        else:
            ends = max((queue.log_end for queue in self._derived.table), default=0)
            trusted = [s.start for s in segments if s.start < ends]
        return trusted[-1] if trusted else segments.start

    def _confirmed(self, found: _Found) -> int:
        """Return up to where the log may be shown to consumers.  Without replication that is all of it; a member of a
        group shows only what was confirmed when its last recovery point was made.
        """
        if found.point is None or not found.start.is_ours or not self._settings.keeps_tail:
            return _FOREVER
        return found.point.dispatched

    def _note(self, start: Start, begin: int, scan: LogScan) -> None:
        report = self.report
        report.start, report.scanned_from, report.records = start, begin, scan.count
        report.end, report.reason = scan.at, scan.reason

    def _judge(self, found: _Found, scan: LogScan) -> None:
        if found.point is not None and found.start.is_ours:
            scan.judge(found.point.flushed, 0)
        elif found.start is Start.FOREIGN_CLEAN:
            scan.judge(0, _FOREVER_MS)
        else:
            scan.judge(0, found.java.physic_ms)

    def _cut(self, found: _Found, begin: int, scan: LogScan) -> None:
        self._log.segments.cut(scan.at)
        if found.start is not Start.FOREIGN_CLEAN:
            is_ours = found.point is not None and found.start.is_ours
            self._log.rewrite(found.point.flushed if found.point and is_ours else begin, scan.at)
        if found.start is Start.FOREIGN_CRASHED:
            self._derived.clamp(scan.at)

    def _finish(self, found: _Found, confirmed: int, store_ms: int) -> None:
        root, end, derived = self._settings.root, self.report.end, self._derived
        self._disk.open(filenames.abort(root), create=True).close()
        self._disk.sync_folder(root)
        derived.raise_heads()
        derived.index.absorb_all(confirmed)
        self._log.resume(end)
        checkpoint = Checkpoint(
            self._disk, self._settings, self._clock, self._background.housekeeper, derived.table, derived.index
        )
        self._bury_nothing_to_come(end, checkpoint)
        checkpoint.start_from(found.point, found.java, store_ms)
        checkpoint.taken_in = partial(foreign.forget_opening, self._disk, root)
        # On a full disk the store opens for reading; any other failure of the first checkpoint ends the start.
        error = checkpoint.now(end, confirmed)
        if error is not None and not isinstance(error, DiskFullError):
            raise error
        if error is None:
            reviving.done(self._disk, root, self._revived)
        self.parts = StoreParts(
            self._settings,
            self._disk,
            self._clock,
            self._background,
            self._lock,
            self._log,
            derived,
            checkpoint,
            store_ms,
            confirmed,
            self.report,
        )

    def _bury_nothing_to_come(self, end: int, checkpoint: Checkpoint) -> None:
        """Correct gravestones behind the log's end: a crash may have removed the part in which a topic was deleted."""
        table, disk, root = self._derived.table, self._disk, self._settings.root
        table.gravestones = {topic: min(begins, end) for topic, begins in table.gravestones.items()}
        is_clipped = table.generations.clip(end)
        if is_clipped or table.generations.all() != self._lives_found or self._revived:
            # Before anything is appended there, and before queues are durable that hold what another life hides.
            document = table.generations.to_document()
            checkpoint.reserve.carry_out(lambda: generations.save(disk, root, document))


def _torn_from(found: _Found, begin: int) -> int | None:
    """Records from this log offset on may be torn; None: none is, RocketMQ's broker stopped in order."""
    if found.point is not None and found.start.is_ours:
        return found.point.flushed
    return begin if found.start.is_crash else None


_FOREVER = _FOREVER_MS = 1 << 62
