"""Queues and index at a start: opened as far as they were durable, completed from the log, built again if damaged.

`load` says from where the log must be dispatched; `dispatch` does it; `repair` looks for queues that lack
entries even then (files lost or damaged) and reads the whole log once more for those.  All of it is idempotent:
records that a queue or the index has already are recognised by their log offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.clock import Clock
from gantry.leaves import records
from gantry.store import foreign, queuebase
from gantry.store.commitlog import CommitLog
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import Disk
from gantry.store.dispatcher import Derivation
from gantry.store.keyindex import KeyIndex, write_indexes
from gantry.store.logscan import LogScan
from gantry.store.queuebase import QueueBase
from gantry.store.queuefiles import DamagedQueueError, QueueFiles
from gantry.store.queueloading import QueueLoader, cut_queue
from gantry.store.queuetable import QueueKey, QueueTable
from gantry.store.recoverypoint import IndexState
from gantry.store.settings import StoreSettings

# What may gather in memory of queues or index while a large log is dispatched.
_SPILL_BYTES = 16 << 20


class Derived:
    """What is derived from the log, while a store opens."""

    def __init__(self, settings: StoreSettings, disk: Disk, clock: Clock, log: CommitLog) -> None:
        self._disk = disk
        self.root = settings.root
        self._log = log
        self.files = QueueFiles(disk, settings.queue_file_entries, settings.sync_together_min)
        self.table = QueueTable(disk, settings.root, self.files)
        self.index = KeyIndex(disk, settings.root, clock, settings.index_slots, settings.index_entries)
        self.derivation = Derivation(self.table, self.index, settings.delay_levels_ms)
        self.rebuilt: list[str] = []
        self.heads: dict[QueueKey, int] = {}  # where queues go on behind what is written and not confirmed
        self._tails: dict[QueueKey, int] = {}  # and their first record in that part of the log
        self._base = QueueBase(0, {}, {})  # what is remembered of the queues
        self.derivation.restarts = {}
        self.listed = foreign.Listed()  # the topics in topics.json, where RocketMQ's broker may have changed them

    def load_queues(self, limit: int | None, walk: bool, base: QueueBase) -> bool:
        """Open all queues; False when one of them has to be built again from the whole log."""
        has_all = True
        self.table.gravestones = dict(base.gravestones)
        loader = QueueLoader(self._disk, self.root, self.files, limit, walk)
        # What a table knows that is not ahead of the recovery point went to the disk before it.
        has_durable = limit is not None and base.log_offset <= limit
        for topic, queue_id in loader.folders():
            try:
                durable = base.following(topic, queue_id) if has_durable else 0
                queue = loader.load(topic, queue_id, durable)
                if queue is not None and limit is not None:
                    self._check(queue, base.first(topic, queue_id))
            except DamagedQueueError:
                self._drop(topic, queue_id)
                has_all = False
                continue
            if queue is not None and 0 < queue.log_end <= base.gravestones.get(topic, 0):
                # The topic was deleted, and a crash came before its files went.
                self.table.drop(topic, queue_id)
            elif queue is not None:
                self.table.adopt(queue)
        if limit is None:
            base = queuebase.without(base, foreign.bury_deleted(self.table, self._log, self.listed))
            base = foreign.without_made_again(self.table, base, self._log.start)
        self._base = base
        for ends in base.queues():
            if self.table.get(ends.topic, ends.queue_id) is None:
                self._drop(ends.topic, ends.queue_id)
                has_all = False
        return has_all

    def _drop(self, topic: str, queue_id: int) -> None:
        self.table.drop(topic, queue_id)
        self.rebuilt.append(f"{topic}/{queue_id}")

    def _check(self, queue: ConsumeQueue, first: int) -> None:
        """Samples: the first and the last entry of each file have to name records of this queue, if still there."""
        if queue.first > first:
            raise DamagedQueueError(f"{queue.folder} begins at {queue.first}, not at {first}")
        step = self.files.file_entries
        begins = range(queue.first, queue.next, step)
        for offset in (*begins, *(min(begin + step, queue.next) - 1 for begin in begins)):
            entry = queue.entry(offset)
            if entry is None or (entry[1] > 0 and 0 <= entry[0] < self._log.start):
                continue
            found = self._log.record(entry[0], entry[1], self._log.segments.end)
            if found is None or (found.topic, found.queue_id, found.queue_offset) != (
                queue.topic,
                queue.queue_id,
                offset,
            ):
                raise DamagedQueueError(f"{queue.folder}: entry {offset} does not name record {offset} of this queue")

    def load_index(self, state: IndexState, position: int) -> bool:
        """Open the index of our own store; False when it has to be built again from the whole log."""
        if not self.index.load_ours(state):
            self.index.destroy()
            self.rebuilt.append("index")
            return False
        self.index.position = position
        return True

    def dispatch(self, scan: LogScan, confirmed: int) -> Iterator[int]:
        """Bring what the scan reads into queues and index, as far as it is confirmed."""
        self.derivation.gaps = {} if scan.at > self._log.start else None
        yield from self._place(scan, None, confirmed)

    def _place(self, scan: LogScan, end: int | None, confirmed: int) -> Iterator[int]:
        for entries in scan.entries(end):
            if entries[-1].log_offset >= confirmed:
                entries = self._without_tail(entries, confirmed)
            if entries:
                self.derivation.place(entries)
            self.index.absorb_all(min(scan.at, confirmed))
            if self.table.tail_bytes > _SPILL_BYTES or self.index.tail_bytes > _SPILL_BYTES:
                self._spill(scan.at)
            yield scan.at

    def _without_tail(self, entries: list[records.Entry], confirmed: int) -> list[records.Entry]:
        """Those below the mark; of the others only the queue offsets that they took are remembered."""
        graves = self.table.gravestones
        for entry in entries:
            if entry.log_offset >= max(confirmed, graves.get(entry.topic, 0)):
                key = entry.topic, entry.queue_id
                self._tails.setdefault(key, entry.queue_offset)
                self.heads[key] = entry.queue_offset + 1
        return [entry for entry in entries if entry.log_offset < confirmed]

    def number_tail(self, confirmed: int, end: int) -> None:
        """Let appends go on behind the queues and behind what is written and not confirmed, in a store that is open."""
        self.heads.clear()
        for entries in LogScan(self._log.segments, confirmed).entries(end):
            self._without_tail([entry for entry in entries if entry.log_offset < end], confirmed)
        self.raise_heads()

    def raise_heads(self) -> None:
        """After recovery: appends go on behind what is in the queues and behind the tail that is not."""
        self.table.raise_heads()
        self.table.note_ids(self.heads)
        for key, following in self.heads.items():
            self.table.heads[key] = max(following, self.table.heads.get(key, 0))

    def _spill(self, end: int) -> None:
        tails = self.table.pending(end)
        self.files.write([tail for _, tail in tails])
        self.table.settle(tails)
        frozen = self.index.freeze()
        write_indexes(self._disk, self.root, [writes for _, writes in frozen])
        self.index.thaw(frozen)

    def clamp(self, end: int) -> None:
        """Cut queues that name records behind the log's end; only RocketMQ's can."""
        for queue in self.table:
            if queue.log_end > end:
                cut_queue(self._disk, queue, self.files, end)

    def repair(self, end: int) -> Iterator[int]:
        """Build queues again that lack entries, and let none go on below the offset that is remembered for it.

        The table is durable before the recovery point is, so it may count records that this start may not show yet:
        their entries come when they are confirmed, and nothing may stand in their places until then.
        """
        base = self._bury_restarted(self._base)
        lacking = dict(self.derivation.gaps or {})
        is_partial = self.derivation.gaps is not None
        self.derivation.gaps = None
        for ends in base.queues():
            queue = self.table.get(ends.topic, ends.queue_id)
            if queue is None or (queue.next < ends.following and base.log_offset <= end):
                lacking[(ends.topic, ends.queue_id)] = None
        if lacking and is_partial:
            for topic, queue_id in lacking:
                self._drop(topic, queue_id)
            yield from self._place(LogScan(self._log.segments, self._log.start), end, end)
            base = self._bury_restarted(base)
        self.derivation.restarts = self.derivation.is_deleted = None
        for ends in base.queues():
            following = min(ends.following, self._tails.get((ends.topic, ends.queue_id), ends.following))
            if following:
                self.table.go_on(ends.topic, ends.queue_id, following)

    def _bury_restarted(self, base: QueueBase) -> QueueBase:
        """The table without topics that turned out to begin again in the log; what they had before is buried."""
        restarts, self.derivation.restarts = self.derivation.restarts or {}, {}
        for topic, old_end in restarts.items():
            foreign.bury_before(self.table, topic, self._log.start, old_end)
        return queuebase.without(base, list(restarts))

    def close(self) -> None:
        """Close the files of queues and index."""
        self.files.close()
        self.index.close()
