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
from gantry.leaves import queues, records
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


class Derivation:
    """What queues and index say is derived here from records, and nowhere else.  Loop thread only."""

    def __init__(self, table: QueueTable, index: KeyIndex, delay_levels_ms: tuple[int, ...]) -> None:
        self._table = table
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        # While a part of the log is dispatched again at a start: queues that lack what stands before that part.
        self.gaps: dict[QueueKey, None] | None = None

    def place(self, entries: Entries) -> list[tuple[ConsumeQueue, Entries]]:
        """Put records into their queues and among the index's pending; what is there already is left out."""
        self._index.add(entries)
        return [placed for found in queues.by_queue(entries) if (placed := self._put(*found)) is not None]

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
            packed = queues.pack_entries(
                [(entry.log_offset, entry.size, duetimes.code(entry, levels_ms)) for entry in group]
            )
        last = group[-1]
        table.add(queue, packed or _packed(group), last.log_offset + last.size)
        table.came[topic] = table.came.get(topic, 0) + size
        return queue, group

    def _missing(self, queue: ConsumeQueue, group: Entries) -> Entries:
        """Those that the queue does not have yet; what is lost before them is noted or filled."""
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
        """Hear of every queue that got entries: (topic, queue id, new end of the queue, the entries)."""
        self._listeners.append(listener)

    def on_failed(self, listener: Callable[[StoreError], None]) -> None:
        """Hear that confirmed records cannot be read: the mark stands still, and the process must end."""
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
            # Whoever moved the mark cannot help it, and the others who listen to it have been promised its news.
            for listener in self._failed_listeners:
                listener(error)
        finally:
            self._is_busy = False

    def _dispatch(self, start: int, end: int) -> None:
        """The runs that are still at hand, or one walk."""
        entries, reached = self._log.take_entries(start, end)
        if not entries:
            entries, reached = self._walk(start, end)
        placed = self._derivation.place(entries)
        self._dispatched.advance(reached)
        for queue, fresh in placed:
            for listener in self._listeners:
                listener(queue.topic, queue.queue_id, queue.next, fresh)

    def _walk(self, start: int, end: int) -> tuple[Entries, int]:
        """What is confirmed has to read: CorruptRecordError when it does not."""
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
