"""From the log to queues and index: confirmed records, each exactly once, in log order.

The dispatcher walks the bytes between its own mark and the confirmed mark, groups the records by queue and
adds them batch-wise.  Runs that are confirmed soon after they were written are not read back: the log still has
their entries.  It is the only way into queues and index; recovery uses the same code on records that
may have been dispatched before, which the log offset tells.

Records of RocketMQ 3.2.6's transactions: PREPARED (sysFlag 4) and ROLLBACK (12) have no queue entry;
ROLLBACK has no index entry either.  Entries of delayed messages carry when they are due where others carry the tag
hash (`duetimes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantry.errors import CorruptRecordError, StoreError
from gantry.leaves import delays, queues, records
from gantry.store import duetimes
from gantry.store.commitlog import CommitLog
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.keyindex import KeyIndex
from gantry.store.queuefiles import FILLER
from gantry.store.queuetable import QueueKey, QueueTable
from gantry.store.watermarks import Watermark

Entries = list[records.Entry]
Listener = Callable[[str, int, int, Entries], None]

_WALK_RECORDS_MAX = 4096
_FOREVER = 1 << 62
_NO_QUEUE_BIT = 0x4  # sysFlag of records that no queue gets and that have no queue offset, see `leaves.queues`


class Derivation:
    """Puts records into queues and index; no other code adds entries to them.  Loop thread only."""

    def __init__(self, table: QueueTable, index: KeyIndex, delay_levels_ms: tuple[int, ...]) -> None:
        self._table = table
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        # While a part of the log is dispatched again at a start: queues that lack what stands before that part.
        self.gaps: dict[QueueKey, None] | None = None
        # While a store opens: topics with a queue that begins at 0 again in the log, and the end of its last record
        # before that.  RocketMQ's broker deleted them and made them again; it does not know our generations.
        self.restarts: dict[str, int] | None = None
        # While a store opens that RocketMQ's broker stopped in order: whether it deleted a topic that has no queue.
        self.is_deleted: Callable[[str], bool] | None = None

    def place(self, entries: Entries) -> list[tuple[ConsumeQueue, Entries]]:
        """Put records into their queues and among the index's pending; what is there already is left out."""
        self._index.add(entries)
        if self.restarts is not None:
            while (at := self._first_restart(entries)) is not None:
                self._group(entries[:at])
                self._restart(entries[at])
                entries = entries[at:]
        return self._group(entries)

    def _group(self, entries: Entries) -> list[tuple[ConsumeQueue, Entries]]:
        return [placed for found in queues.by_queue(entries) if (placed := self._put(*found)) is not None]

    def _first_restart(self, entries: Entries) -> int | None:
        """Where the first record stands that is number 0 of a queue which has other records before it in the log."""
        if all(entry.queue_offset for entry in entries):
            return None
        graves, seen = self._table.gravestones, set[QueueKey]()
        for number, entry in enumerate(entries):
            key = entry.topic, entry.queue_id
            if entry.sys_flag & _NO_QUEUE_BIT or entry.log_offset < graves.get(entry.topic, 0):
                continue
            queue = self._table.get(*key)
            is_new = queue is None or queue.log_end <= entry.log_offset
            if entry.queue_offset == 0 and is_new and (key in seen or (queue is not None and queue.log_end > 0)):
                return number
            seen.add(key)
        return None

    def _restart(self, entry: records.Entry) -> None:
        """Empty the queue that begins again with this record."""
        assert self.restarts is not None
        queue = self._table.get(entry.topic, entry.queue_id)
        if queue is not None:
            self.restarts[entry.topic] = max(queue.log_end, self.restarts.get(entry.topic, 0))
            self._table.drop(entry.topic, entry.queue_id)
            self._table.create(entry.topic, entry.queue_id, 0)

    def _put(
        self, topic: str, queue_id: int, group: Entries, packed: bytes, size: int
    ) -> tuple[ConsumeQueue, Entries] | None:
        table = self._table
        if table.gravestones and group[0].log_offset < (gravestone := table.gravestones.get(topic, 0)):
            group, packed = [entry for entry in group if entry.log_offset >= gravestone], b""
            if not group:
                return None
        queue = table.get(topic, queue_id)
        if queue is None:
            if self.is_deleted is not None and self.is_deleted(topic):
                table.bury(topic, _FOREVER)  # clipped to where the log is found to end
                return None
            if self.gaps is not None and group[0].queue_offset > 0:
                self.gaps[(topic, queue_id)] = None
                return None
            queue = table.create(topic, queue_id, group[0].queue_offset)
        if not packed or group[0].queue_offset != queue.next:
            group, packed = self._missing(queue, group), b""
            if not group:
                return None
        if not packed:
            size = sum([entry.size for entry in group])
        if topic in duetimes.TOPICS:
            levels_ms = self._delay_levels_ms
            packed = delays.pack_coded(group, duetimes.codes(topic, group, levels_ms))
        last = group[-1]
        table.add(queue, packed or _packed(group), last.log_offset + last.size)
        table.came[topic] = table.came.get(topic, 0) + size
        return queue, group

    def _missing(self, queue: ConsumeQueue, group: Entries) -> Entries:
        """Return the entries that the queue lacks; a gap before them is noted, or filled with fillers."""
        group = [entry for entry in group if entry.log_offset >= queue.log_end and entry.queue_offset >= queue.next]
        fresh: Entries = []
        for entry in group:
            expected = queue.next + len(fresh)
            if entry.queue_offset < expected:
                # RocketMQ: an index below the end is ignored, else consumers would be sent back.
                continue
            if entry.queue_offset > expected:
                if self.gaps is not None:
                    self.gaps[(queue.topic, queue.queue_id)] = None
                    return []
                self._extend(queue, fresh, entry.queue_offset - expected)
                fresh = []
            fresh.append(entry)
        return fresh

    def _extend(self, queue: ConsumeQueue, fresh: Sequence[records.Entry], fillers: int) -> None:
        """Keep the offsets that producers were told: entries lost for good become fillers, which are never read."""
        end = fresh[-1].log_offset + fresh[-1].size if fresh else queue.log_end
        self._table.add(queue, _packed(fresh) + FILLER * fillers, end)


def _packed(group: Sequence[records.Entry]) -> bytes:
    return queues.pack_entries([(entry.log_offset, entry.size, entry.tags_code) for entry in group])


class Dispatcher:
    """Moves the dispatched mark up to the confirmed one.  Loop thread only."""

    def __init__(self, log: CommitLog, derivation: Derivation, confirmed: Watermark, dispatched: Watermark) -> None:
        self._log = log
        self._derivation = derivation
        self._confirmed = confirmed
        self._dispatched = dispatched
        self._listeners: list[Listener] = []
        self._failed_listeners: list[Callable[[StoreError], None]] = []
        self._is_busy = False
        confirmed.listen(self._on_confirmed)

    def listen(self, listener: Listener) -> None:
        """Register a listener for queues that got entries: (topic, queue id, new end of the queue, the entries)."""
        self._listeners.append(listener)

    def on_failed(self, listener: Callable[[StoreError], None]) -> None:
        """Register a listener for confirmed records that cannot be read: the mark stops, and the process must end."""
        self._failed_listeners.append(listener)

    def _on_confirmed(self, _: int) -> None:
        # A listener that appends gets here again; the call that is under way goes on for it.
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._dispatched.offset < self._confirmed.offset:
                self._dispatch(self._dispatched.offset, self._confirmed.offset)
        except StoreError as error:
            # Not raised: the caller that moved the mark cannot handle it, and its other listeners must be called.
            for listener in self._failed_listeners:
                listener(error)
        finally:
            self._is_busy = False

    def _dispatch(self, start: int, end: int) -> None:
        """Dispatch [start, end): runs whose entries are still in memory, the rest by reading the log once."""
        entries, reached = self._log.take_entries(start, end)
        if not entries:
            entries, reached = self._walk(start, end)
        placed = self._derivation.place(entries)
        self._dispatched.advance(reached)
        for queue, fresh in placed:
            for listener in self._listeners:
                listener(queue.topic, queue.queue_id, queue.next, fresh)

    def _walk(self, start: int, end: int) -> tuple[Entries, int]:
        """Read the entries of [start, end) from the log; CorruptRecordError when confirmed records cannot be read."""
        limit = min(self._log.segment_end(start), end)
        memory, at = self._log.stretch(start, limit)
        entries, stop, reason = records.walk(memory, at, at + limit - start, start, False, _WALK_RECORDS_MAX)
        reached = start + stop - at
        if reason == "blank":
            reached = self._log.segment_end(start)
        elif reason != "more" and reached != limit:
            path = self._log.segments.at(start).file.path
            raise CorruptRecordError(f"segment {path}: {reason} among confirmed records below {end}")
        return entries, reached
