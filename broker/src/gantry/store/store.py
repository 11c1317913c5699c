"""The store: one log, its marks, and the queues and index derived from it, as one object.

The life of a message here: append() gives it a queue offset, writes it (written moves) and returns; a flush
makes it durable (flushed); replication, or the store alone, confirms it (confirmed); it is dispatched into its
queue and the index (dispatched) and can be fetched.  With ASYNC_FLUSH and confirm_locally() all of this but
the flush happens before append() returns.

One thread, the loop's, calls everything here.  What blocks is done by `background`; tick() keeps it going.
After a failed sync or write (`failed`) the store takes nothing more and the process must end: only the
next start can find out what is really on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from gantry.errors import CorruptRecordError, DiskFullError, StoreError
from gantry.leaves import frames, queues, records
from gantry.store import filenames
from gantry.store.background import reading
from gantry.store.coldrange import ColdRange
from gantry.store.commitlog import RunTooLongError, ZeroSectorError
from gantry.store.deleting import Deleting
from gantry.store.dispatcher import Dispatcher, Listener
from gantry.store.dropping import Dropping
from gantry.store.flushing import LogFlush
from gantry.store.generations import Generations, TopicGeneration
from gantry.store.reading import Reader
from gantry.store.recovery import RecoveryReport, StoreParts
from gantry.store.retention import Retention
from gantry.store.settings import Flush, StoreSettings
from gantry.store.stalling import Stalling
from gantry.store.stats import StoreStats
from gantry.store.watermarks import Watermark

Places = Sequence[tuple[int, int]]
_DRAINS = 3  # the listener of a finished job may submit another one: so many after each other at most


class Store:
    """An open store; made by `gantry.store.opening`."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._log, self._table, self._index = parts.log, parts.derived.table, parts.derived.index
        self._checkpoint = parts.checkpoint
        self._store_ms = parts.store_ms
        self.is_closed = False
        self._uncorrected: list[Callable[[], None]] = []  # saves of what the start corrected that found no room
        self._failed_listeners: list[Callable[[StoreError], None]] = []
        self.failed: StoreError | None = None
        self.report: RecoveryReport = parts.report
        self.settings: StoreSettings = parts.settings
        self.store_host = parts.settings.store_host
        self.written = Watermark(parts.log.end)
        self.flushed = Watermark(parts.log.end, self.written)
        self.confirmed = Watermark(parts.confirmed, self.written)
        self.dispatched = Watermark(parts.confirmed, self.confirmed)
        housekeeper = parts.background.housekeeper
        self._dispatcher = Dispatcher(parts.log, parts.derived.derivation, self.confirmed, self.dispatched)
        self._dispatcher.on_failed(self._fail)
        self._flush = LogFlush(
            parts.log, self.written, self.flushed, parts.background.flusher, parts.settings, parts.clock, self._fail
        )
        self.stalling = Stalling(self._flush, self.flushed, housekeeper, parts.clock)
        self.deleting = Deleting(
            parts.disk, parts.settings.root, self._table, housekeeper, parts.checkpoint.reserve, self._fail
        )
        dropping = Dropping(parts.disk, parts.clock, housekeeper, parts.log, parts.derived, parts.checkpoint)
        self.retention = Retention(parts.settings, parts.disk, parts.clock, housekeeper, parts.log, dropping)
        self.reader = Reader(parts.log, self._table, self._index, self.dispatched, parts.settings.warm_bytes)

    def confirm_locally(self) -> None:
        """Without replication: what this disk has (SYNC_FLUSH) or what is written (ASYNC_FLUSH) is confirmed."""
        self.share.listen(self.confirmed.advance)
        self.confirmed.advance(self.share.offset)

    @property
    def share(self) -> Watermark:
        """Return the mark of this machine alone: flushed with SYNC_FLUSH, written with ASYNC_FLUSH."""
        return self.flushed if self.settings.flush is Flush.SYNC else self.written

    def append(
        self, sends: Sequence[frames.Send], together: bool = False, is_scanned: bool = False, is_owed: bool = False
    ) -> int:
        """Write a run of messages; their queue offset, log offset and size are set.  Returns the log's end.

        Queue offsets follow each other per queue in the order of the run; topic, queue and properties are
        final.  together: all in one segment (a crash may still keep only the beginning of the run).
        is_scanned: traits, keys and tag codes are those of the final properties, so they need not be read again.
        is_owed: copies without which retention cannot go on are written as long as they find room at all, and what
        the start corrected is saved.
        DiskFullError, RunTooLongError and ZeroSectorError: nothing happened, and no offset was used up.  Any other
        StoreError: the store has failed.
        """
        self._refuse_if_unfit(is_owed and not self._uncorrected)
        heads = self._table.heads
        given = queues.number(sends, heads)
        # Times never fall within the log, whatever the wall clock does: search by time relies on it.
        store_ms = max(self._parts.clock.now_ms(), self._store_ms)
        try:
            end = self._log.append(sends, store_ms, self.store_host, together, is_scanned)
        except StoreError as error:
            if not isinstance(error, (DiskFullError, RunTooLongError, ZeroSectorError)):
                self._fail(error)
            raise
        known = len(heads)
        heads.update(given)
        if len(heads) != known:
            self._table.note_ids(given)
        self._store_ms = store_ms
        self._checkpoint.times.note(end, store_ms)
        if is_owed:
            self.retention.carried_bytes += end - self.written.offset
        self.written.advance(end)
        return end

    def append_raw(self, start: int, data: memoryview) -> int:
        """Write whole records of the master's log at the same place in ours; the new end.

        CorruptRecordError: these bytes are not what they should be, and nothing happened.  DiskFullError as usual.
        """
        self._refuse_if_unfit(is_owed=True)
        if start != self.written.offset:
            raise StoreError(f"records for {start}, the log ends at {self.written.offset}")
        entries, stop, reason = records.walk(data, 0, len(data), start, True)
        if stop < len(data):
            if not self._log.is_blank(data[stop:], start + stop):
                raise CorruptRecordError(f"{reason} among {len(data)} bytes for {start}")
        try:
            end = self._log.append_raw(data, stop, entries)
        except StoreError as error:
            if not isinstance(error, DiskFullError):
                self._fail(error)
            raise
        if entries:
            self._store_ms = max(self._store_ms, entries[-1].store_ms)
        self._checkpoint.times.note(end, self._store_ms)
        self.written.advance(end)
        return end

    @property
    def latest_ms(self) -> int:
        """Return the store time of the newest message; 0 in an empty log."""
        return self._store_ms

    @property
    def is_short(self) -> bool:
        """Whether there is no room for the next segment of the log."""
        return self._log.is_short

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        """Written records from `start` on, uncopied, for a slave; and where the next chunk begins."""
        end, following = self._log.aligned(start, self.written.offset, bytes_max)
        return self._log.slice(start, end - start), following

    def _refuse_if_unfit(self, is_owed: bool) -> None:
        if self.failed is not None:
            raise StoreError(f"the store has failed: {self.failed}") from self.failed
        if self.is_closed:
            raise StoreError("the store is closed")
        if not is_owed and (why := self.why_full):
            raise DiskFullError(why)

    @property
    def why_full(self) -> str:
        """Return why there is no room for further messages; an empty text when there is."""
        if self.retention.refuses_writes:
            return f"the disk is {self.retention.seen.used:.0%} full"
        if self._checkpoint.is_short:
            return "no room for queue and index files"
        if self._log.is_short:
            return "no room for the next segment of the log; what is left is kept for what is owed"
        if self._uncorrected:
            return "no room for what the start corrected"
        return ""

    def tick(self, now_ms: int) -> Iterator[bool]:
        """Start what is due, every 10 to 100 ms.  Return slices of what takes long; the next tick goes on with it."""
        if self.failed is not None or self.is_closed:
            return iter(())
        self._checkpoint.go_on()
        if self._uncorrected:
            self._correct_again()
        self._flush.tick()
        self._index.absorb(self.flushed.offset)
        self.deleting.go_on(self.durable_end)
        is_held_up = self.deleting.is_pending or self.retention.dropping.is_saving
        if self._checkpoint.is_due(self.flushed.offset) and not is_held_up:
            self._checkpoint.begin(self.flushed.offset, self.dispatched.offset, self._checkpointed)
        self.retention.tick(self.durable_end, now_ms)
        self._log.prepare()
        if self._log.segments.failed is not None:
            self._fail(self._log.segments.failed)
        return chain(
            iter(partial(self.deleting.go_on, self.durable_end), False),
            iter(self.retention.dropping.go_on, False),
            iter(self._checkpoint.go_on, False),
        )

    @property
    def durable_end(self) -> int:
        """Up to here the log is on the disk, and queues and index know it."""
        return min(self.flushed.offset, self.dispatched.offset)

    def _checkpointed(self, error: StoreError | None) -> None:
        if error is not None and not isinstance(error, DiskFullError):
            self._fail(error)

    def _fail(self, error: StoreError) -> None:
        if self.failed is None:
            self.failed = error
            self._flush.give_up()
            for listener in self._failed_listeners:
                listener(error)

    def on_failed(self, listener: Callable[[StoreError], None]) -> None:
        """Register a listener for the failure after which the process must end."""
        self._failed_listeners.append(listener)

    def on_dispatched(self, listener: Listener) -> None:
        """Register a listener for queues that got entries: (topic, queue id, new end of the queue, the entries)."""
        self._dispatcher.listen(listener)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """[min, max) of a queue's offsets; None when there is no such queue.  All other reading is `reader`'s."""
        return self.reader.queue_range(topic, queue_id)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next appended message gets."""
        return self._table.heads.get((topic, queue_id), 0)

    def bytes_came(self) -> Mapping[str, int]:
        """How many bytes of records came since the store was opened, by topic."""
        return self._table.came

    def queues(self) -> Iterator[tuple[str, int]]:
        """(topic, queue id) of every queue."""
        return ((queue.topic, queue.queue_id) for queue in self._table)

    @property
    def generations(self) -> Generations:
        """Return the generations of all topics."""
        return self._table.generations

    def raw(self, start: int, end: int) -> memoryview:
        """Written bytes of one segment, uncopied."""
        return self._log.slice(start, end - start)

    def expired_ends(self) -> Iterator[dict[str, dict[str, int]]]:
        """The next offsets of queues of which the log has no record any more, by topic and queue id, in slices."""
        return self._table.expired_ends(self._log.start)

    def begin_queue(self, topic: str, queue_id: int, following: int) -> None:
        """Create a missing queue that goes on at this offset, like the master's; makes its first file."""
        if self._table.get(topic, queue_id) is None:
            self._table.go_on(topic, queue_id, following)

    def bury(self, topic: str, life: TopicGeneration) -> None:
        """Forget the queues of a topic that the master deleted; its later records belong to this generation."""
        self.deleting.delete(topic, life.begins, self.durable_end, life.generation)

    def live_on(self, topic: str, life: TopicGeneration) -> None:
        """Set the topic's generation and keep its queues: this one and the former begin before the log's start."""
        self.deleting.number(topic, life, self.durable_end)

    def delete_queues(self, topic: str) -> None:
        """Forget a topic's queues; its records stay in the log until they expire, but are never found again."""
        self.deleting.delete(topic, self.written.offset, self.durable_end)

    def bring_in(self, places: Places | ColdRange, done: Callable[[], None], ahead_bytes: int = 0) -> None:
        """Have the cold reader read these (log offset, size), or a place of another file, then call done on the loop.

        ahead_bytes: so much of the log behind them will probably be read next; that is begun and not waited for.
        """
        cold_reader = self._parts.background.cold_reader
        if not isinstance(places, ColdRange):
            self._log.bring_in(places, cold_reader, done, ahead_bytes)
        elif not cold_reader.submit(reading(places.file, ((places.start, places.end),)), lambda _: done()):
            done()

    def stats(self) -> StoreStats:
        """Return offsets, disk usage and counts for the runtime information and the metrics."""
        return StoreStats(
            self._log.start,
            self.written.offset,
            self.flushed.offset,
            self.confirmed.offset,
            self.dispatched.offset,
            self.reader.oldest_ms(),
            self._store_ms,
            self.retention.seen.used,
            *self._parts.disk.usage(self.settings.root),
            len(self._table),
        )

    def save_corrected(self, save: Callable[[], None]) -> bool:
        """Save what a start corrected, in the reserve's room on a full disk; blocks.  Return whether that worked.

        After False it is tried again when a checkpoint has found room.  Until then nothing is appended, because
        afterwards the next start could not recognise the error in the file.
        """
        try:
            self.in_reserve(save)
        except DiskFullError:
            self._checkpoint.is_short = True
            self._uncorrected.append(save)
            return False
        return True

    def in_reserve(self, save: Callable[[], object]) -> None:
        """Save what a start cannot do without, in the reserve's room on a full disk; blocks."""
        self._checkpoint.reserve.carry_out(save)

    def _correct_again(self) -> None:
        # What is saved may refer to the log, so that is made durable first; then no other job uses the reserve.
        is_durable = self.flushed.offset >= self.written.offset
        if self._checkpoint.is_short or not is_durable or self._parts.background.housekeeper.is_busy:
            return
        saves, self._uncorrected = self._uncorrected, []
        for save in saves:
            self.save_corrected(save)

    def close(self, is_settled: bool = True) -> None:
        """Stop in order: blocks until all is durable; numbered as in broker/docs/store.md.

        is_settled: what the start found wrong is corrected, so the next one need not look again.

        1. no more appends  2. flush the log  3. let the housekeeper finish  4. queues, index, recovery file
        5. remove `abort`   6. files and lock.  When a replica has not confirmed all, or the start was not settled, 5 is
        left out, and when the store has failed, only 6 is done: the next start will look.
        """
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if self.failed is None:
                self._flush.finish()
            self._parts.background.flusher.drain()
            self.deleting.complete(self.durable_end)
            self._checkpoint.complete()
            if self.failed is None and not self.deleting.is_pending:
                self._close_in_order(is_settled)
        except DiskFullError:
            # `abort` stays: the next start reads from the last checkpoint.
            pass
        finally:
            self._log.close()
            self._parts.derived.close()
            if self._parts.lock is not None:
                self._parts.lock.release()

    def is_quiet(self, end: int, jobs: int) -> bool:
        """Ask for the log below `end` to be durable. Return whether it is, and no job waits since the `jobs`-th ended.

        A store that has failed is quiet.
        """
        self._flush.request(end)
        worker = self._parts.background.housekeeper
        is_idle = not worker.is_busy or worker.ended > jobs
        return self.failed is not None or (self.flushed.offset >= end and is_idle)

    @property
    def jobs_ended(self) -> int:
        """How many jobs of the housekeeper have ended."""
        return self._parts.background.housekeeper.ended

    def go_on(self) -> Store | None:
        """Close this store and return a new one with the same open files and no listener; None when it has to be opened
        again: it failed, or files are left to be removed.  Blocks until the checkpoint under way is done.
        """
        if self.is_closed:
            return None
        self._flush.finish()
        self.retention.dropping.tick()
        self.deleting.complete(self.durable_end)
        self._checkpoint.complete()
        for _ in range(_DRAINS):
            self._parts.background.housekeeper.drain()
        if self.failed is not None or self.flushed.offset < self.written.offset:
            return None  # it failed, by now or before, or a sync was put off
        if self.deleting.is_pending or self.deleting.kept < self.deleting.asked or self.retention.dropping.is_pending:
            return None
        self.is_closed = True
        dispatched = self.dispatched.offset
        self._parts.derived.number_tail(dispatched, self.written.offset)
        report = RecoveryReport(scanned_from=dispatched, end=self.written.offset)
        return Store(self._parts._replace(store_ms=self._store_ms, confirmed=dispatched, report=report))

    def _close_in_order(self, is_settled: bool) -> None:
        end, confirmed = self.written.offset, self.dispatched.offset
        self._index.absorb_all(confirmed)
        is_clean = confirmed == end and is_settled
        if self._checkpoint.now(end, confirmed, clean=is_clean) is None and is_clean:
            self._parts.disk.unlink(filenames.abort(self.settings.root))
            self._parts.disk.sync_folder(self.settings.root)
