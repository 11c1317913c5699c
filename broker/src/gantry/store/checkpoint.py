"""The checkpoint: about once a second, the parts of queues and index in memory are written to disk, and the
recovery file says how far they go.

A cycle has three parts.  On the loop a consistent picture is taken: everything that belongs to records below one log
offset is copied.  The housekeeper gets one job, which does only input and output, in this order:

    1. queue entries, synced (many files by one sync, see `queuefiles`)
    2. index entries, then index slots and headers, synced
    3. the queue-base table, when it is due
    4. the recovery file
    5. RocketMQ's checkpoint; with the first cycle, that RocketMQ's broker had the folder is forgotten
    6. index files that retention gave up are unlinked

Then, on the loop, what was written is removed from memory.  Nothing that is not flushed in the log goes into a queue
file or an index file.  A cycle that fails for want of room is repeated with the same and newer contents; a failed sync
is final.  A full disk does not keep a cycle from its end as long as there is the `reserve`; while that is gone, or a
cycle fails all the same (`is_short`), nothing is appended, and cycles go on until there is room again.

Taking and leaving are done in slices (`go_on`): ten thousand queues take 40 ms together, and sends wait behind each
slice only.  What is dispatched between two slices lies behind the offset of the picture and is not in it; a queue
that is deleted between two slices is left out, and so is the queue-base table then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from gantry.clock import Clock
from gantry.errors import DiskFullError, StoreError
from gantry.store import javacheckpoint, queuebase, recoverypoint
from gantry.store.background import Done, Worker
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import Disk
from gantry.store.indexfile import IndexFile, IndexWrites
from gantry.store.javacheckpoint import JavaCheckpoint
from gantry.store.keyindex import KeyIndex, write_indexes
from gantry.store.queuebase import QueueBase
from gantry.store.queuefiles import Tail
from gantry.store.queuetable import QueueTable, add_ends, tails_of
from gantry.store.recoverypoint import RecoveryPoint
from gantry.store.reserve import Reserve
from gantry.store.settings import StoreSettings

# The next cycle waits at least this many times as long as the last one took, so that many queues on a slow
# disk do not keep it busy with syncs.
_REST_FACTOR = 4
# The table is only read when a queue has lost its files or its records, so it may be a while behind; how far
# is bounded by the log, which retention cuts only after the table was written.
_BASE_INTERVAL_S = 60.0
# Measured: 1.3 us a tail, 2.4 us a queue of the table, 0.6 us to settle a tail.
_SLICE_QUEUES = 200

_T = TypeVar("_T")


class StoreTimes:
    """When what part of the log was stored: one entry per millisecond and run since the last checkpoint."""

    def __init__(self, store_ms: int) -> None:
        self._ends: deque[tuple[int, int]] = deque()
        self._passed_ms = store_ms

    def note(self, end: int, store_ms: int) -> None:
        """The log up to `end` was stored at this time or before."""
        if self._ends and self._ends[-1][1] == store_ms:
            self._ends.pop()
        self._ends.append((end, store_ms))

    def at(self, offset: int) -> int:
        """The store time of the newest run that ends at or below offset; forgets older ones."""
        while self._ends and self._ends[0][0] <= offset:
            self._passed_ms = self._ends.popleft()[1]
        return self._passed_ms


class _Picture(NamedTuple):
    """What one cycle writes: consistent, and used only by the job until it is done."""

    tails: list[tuple[ConsumeQueue, Tail]]
    indexes: list[tuple[IndexFile, IndexWrites]]
    base: QueueBase | None
    changes: int
    point: RecoveryPoint
    java: JavaCheckpoint
    dropped: list[str]


class Checkpoint:
    """Loop thread only, but for the job."""

    def __init__(
        self, disk: Disk, settings: StoreSettings, clock: Clock, housekeeper: Worker, table: QueueTable, index: KeyIndex
    ) -> None:
        self.reserve = Reserve(disk, settings)
        self.is_short = False  # the last cycle found no room, or only that of the reserve
        # To be done once, after the first recovery point is on the disk, which may be long after a start without room.
        self.taken_in: Callable[[], None] | None = None
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._housekeeper = housekeeper
        self._table = table
        self._index = index
        self._point: RecoveryPoint | None = None
        self._java = JavaCheckpoint()
        self._running = False
        self._work: Iterator[None] | None = None  # what the loop has to do for the cycle under way
        self._due_s = 0.0
        self._base_due_s = 0.0
        self._base_changes = -1
        self._wants_base = False
        self.times = StoreTimes(0)
        self.base_log_offset = -1

    def start_from(self, point: RecoveryPoint | None, java: JavaCheckpoint, store_ms: int) -> None:
        """Continue what was found on disk; store_ms: of the newest record."""
        self._point, self._java = point, java
        self.times = StoreTimes(store_ms)

    @property
    def is_running(self) -> bool:
        """Whether a cycle is under way."""
        return self._running

    def is_due(self, flushed: int) -> bool:
        """Whether the period has passed and there is something new."""
        if self._running or self._clock.monotonic() < self._due_s:
            return False
        if self.is_short or self._wants_base or self._point is None:
            return True
        return self._point.dispatched != flushed or self._point.clean

    def want_base(self) -> None:
        """Write the queue-base table with the next cycle: retention waits for it."""
        self._wants_base = True
        self._due_s = 0.0

    def begin(self, flushed: int, dispatched: int, done: Done, clean: bool = False) -> None:
        """Start a cycle with its first slice; done(error) is called on the loop at its end."""
        assert not self._running
        self._running = True
        self._work = self._take(flushed, dispatched, clean, done)
        self.go_on()

    def go_on(self) -> bool:
        """One slice of what the loop has to do for the cycle; whether there is another one to do now."""
        work = self._work
        if work is not None:
            try:
                next(work)
            except StopIteration:
                # Unless the job is done already, and the next part begun.
                self._work = None if self._work is work else self._work
        return self._work is not None

    def now(self, flushed: int, dispatched: int, clean: bool = False) -> StoreError | None:
        """Run a cycle after the one under way and return its error; blocks, only while a store opens or closes."""
        outcome: list[StoreError | None] = [StoreError("the checkpoint was not taken: too much waits for the disk")]
        self.complete()
        self.begin(flushed, dispatched, outcome.append, clean)
        self.complete()
        return outcome[-1]

    def complete(self) -> None:
        """Bring the cycle under way to its end; blocks."""
        while self.go_on():
            pass
        self._housekeeper.drain()
        while self.go_on():
            pass

    def _take(self, flushed: int, dispatched: int, clean: bool, done: Done) -> Iterator[None]:
        begun_s = self._clock.monotonic()
        end = min(flushed, dispatched)
        first_pending = self._index.first_pending
        complete = end if first_pending is None else min(end, first_pending)
        indexes = self._index.freeze()
        dropped, self._index.dropped = self._index.dropped, []
        point, java = self._where(flushed, complete, clean)
        changes, deletions = self._table.changes, self._table.deletions
        base: QueueBase | None = None
        if self._wants_base or clean or changes != self._base_changes or begun_s >= self._base_due_s:
            base = QueueBase(complete, {}, dict(self._table.gravestones))
            self._wants_base = False
        tails: list[tuple[ConsumeQueue, Tail]] = []
        for number, queues in enumerate(_slices(self._table.dirty())):
            if number:
                yield
            tails += tails_of(queues, end)
        if base is not None:
            for number, queues in enumerate(_slices(list(self._table))):
                if number:
                    yield
                add_ends(base, queues)
        if self._table.deletions != deletions:
            tails = [(queue, tail) for queue, tail in tails if self._table.get(queue.topic, queue.queue_id) is queue]
            self._wants_base, base = self._wants_base or base is not None, None
        picture = _Picture(tails, indexes, base, changes, point, java, dropped)
        job = partial(self.reserve.carry_out, partial(self._write, picture))
        if not self._housekeeper.submit(job, partial(self._written, picture, begun_s, done)):
            self._running = False
            self._give_back(picture)

    def _give_back(self, picture: _Picture) -> None:
        """Have the next cycle write what this one did not, beside what it takes then."""
        self._index.dropped += picture.dropped
        self._wants_base = self._wants_base or picture.base is not None

    def _where(self, flushed: int, complete: int, clean: bool) -> tuple[RecoveryPoint, JavaCheckpoint]:
        """Return what a start reads first: our recovery point and RocketMQ's checkpoint."""
        stored_ms = self.times.at(complete)
        java = self._java._replace(physic_ms=stored_ms, logics_ms=stored_ms, index_ms=self._index.stored_ms)
        point = RecoveryPoint(
            generation=self._point.generation + 1 if self._point else 1,
            clean=clean,
            sizes=self._settings.sizes,
            flushed=flushed,
            dispatched=complete,
            store_ms=stored_ms,
            index=self._index.state,
            java=java.longs,
            java_before=self._java.longs,
        )
        return point, java

    def _write(self, picture: _Picture) -> None:
        disk, root = self._disk, self._settings.root
        self._table.files.write([tail for _, tail in picture.tails])
        write_indexes(disk, root, [writes for _, writes in picture.indexes])
        if picture.base is not None:
            queuebase.save(disk, root, picture.base)
        recoverypoint.save(disk, root, picture.point)
        javacheckpoint.save(disk, root, picture.java)
        if self.taken_in is not None:
            self.taken_in()
        for path in picture.dropped:
            disk.unlink(path)
        self.reserve.keep()

    def _written(self, picture: _Picture, begun_s: float, done: Done, error: StoreError | None) -> None:
        self.is_short = isinstance(error, DiskFullError) or not self.reserve.is_whole
        if error is None:
            self._work = self._settle(picture, begun_s, done)
            self.go_on()
            return
        self._give_back(picture)
        self._rest(begun_s)
        done(error)

    def _settle(self, picture: _Picture, begun_s: float, done: Done) -> Iterator[None]:
        for number, tails in enumerate(_slices(picture.tails)):
            if number:
                yield
            self._table.settle(tails)
        self._index.thaw(picture.indexes)
        self._point, self._java, self.taken_in = picture.point, picture.java, None
        if picture.base is not None:
            self._base_due_s = self._clock.monotonic() + _BASE_INTERVAL_S
            self._base_changes = picture.changes
            self.base_log_offset = picture.base.log_offset
        self._rest(begun_s)
        done(None)

    def _rest(self, begun_s: float) -> None:
        self._running = False
        now_s = self._clock.monotonic()
        self._due_s = now_s + max(self._settings.checkpoint_interval_ms / 1000, _REST_FACTOR * (now_s - begun_s))


def _slices(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """The items in parts that fit a slice."""
    return (items[at : at + _SLICE_QUEUES] for at in range(0, len(items), _SLICE_QUEUES))
