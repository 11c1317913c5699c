"""The table of orderly pops: the newest batch of each queue and group, and its file consumerOrderInfo.json.

Every change is a record in the log (`order_records`).  Two things are known of a queue:

    confirmed    the newest record that was dispatched.  Every member of a group of brokers keeps it, so that a new
                 master has it; it is what is saved.
    present      on a master, the batch of a record that was appended and is not dispatched yet.  It locks the queue at
                 once; its reply waits until it is confirmed.

The document is RocketMQ's, with the log offset of each record (`gl`) and one more member: `gantryNext`, the number of
the first record that may not be in it.  A start reads the document and the records from there on, and has the table as
it was.  A document is computed of what is dispatched and saved when the log is durable up to there: a log that lost its
end in a power cut gives its numbers to new messages, which nobody has acknowledged.  When a document names a record
that is not in the log any more, all records that are left are read again, and the document is replaced at once.

A batch that is done stays for a day: its committed offset is newer than a consumer offset that was saved before a crash
(RocketMQ keeps it as long).  The table is bounded; when it is full a queue without an entry is not popped in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.leaves import records
from gantry.metadata.state import State
from gantry.model import documents, names
from gantry.pop import order, order_records
from gantry.pop.book import Queue
from gantry.pop.order import OrderedBatch
from gantry.pop.order_records import OrderState
from gantry.store.statefile import Lines, line
from gantry.store.store import Store

QUEUES_MAX = 100_000
_NEXT = "gantryNext"
_LOG_OFFSET = "gl"
_SLICE = 64  # records or queues between two turns of the loop


class Kept(NamedTuple):
    """A batch, and where its record begins in the log; 0: RocketMQ wrote it."""

    batch: OrderedBatch
    log_offset: int


class LastDead(NamedTuple):
    """The last record that moved a message to the dead-letter topic, and where it begins in the log."""

    state: OrderState
    log_offset: int


class OrderTable:
    """Batches by queue.  Loop thread only."""

    def __init__(
        self, store: Store, state: State, reset_at: Callable[[str, str, int], int], queues_max: int = QUEUES_MAX
    ) -> None:
        """reset_at: up to where in the log records of (group, topic, queue id) do not count; -1: all of them do."""
        self.last_dead: LastDead | None = None  # None: another change came behind it, so its copy is there
        self.unreadable = 0
        self._store = store
        self._state = state
        self._reset_at = reset_at
        self._queues_max = queues_max
        self._confirmed: dict[Queue, Kept] = {}
        self._present: dict[Queue, Kept] = {}
        self._next = 0
        self._is_changed = False
        self._waiting: tuple[dict[str, object], int] | None = None  # a document, and how far the log has to be durable
        self._load()

    def __len__(self) -> int:
        return len(self._confirmed.keys() | self._present.keys())

    def get(self, queue: Queue) -> OrderedBatch | None:
        """Return the newest batch of a queue; None when nothing is known."""
        kept = self._present.get(queue) or self._confirmed.get(queue)
        return None if kept is None or kept.log_offset < self._reset_at(*queue) else kept.batch

    def has_room(self, queue: Queue) -> bool:
        """Return whether a batch of this queue can be kept."""
        return len(self._confirmed) + len(self._present) < self._queues_max or self.get(queue) is not None

    def queues(self) -> list[Queue]:
        """Return every queue with a batch."""
        return list(self._confirmed.keys() | self._present.keys())

    def appended(self, queue: Queue, batch: OrderedBatch, log_offset: int) -> None:
        """Take over a change whose record was appended at this log offset."""
        if log_offset >= self._store.dispatched.offset:
            self._present[queue] = Kept(batch, log_offset)
        # Else it was dispatched while it was appended, and is confirmed already.

    def on_dispatched(self, topic: str, queue_id: int, end: int, entries: list[records.Entry]) -> None:
        """Take over dispatched records, on every member.  Those before the table's place are read by `catch_up`."""
        if topic != names.POP_ORDER_TOPIC or queue_id != order_records.QUEUE_ID:
            return
        if entries[0].queue_offset > self._next:
            return
        for entry in entries:
            if entry.queue_offset >= self._next:
                self._apply(entry.properties, entry.log_offset)
        self._next = end

    def catch_up(self) -> Iterator[None]:
        """Read the dispatched records that the document does not have, in slices."""
        reader, count = self._store.reader, 0
        at = names.POP_ORDER_TOPIC, order_records.QUEUE_ID
        low, high = reader.queue_range(*at) or (0, 0)
        self._next = min(max(self._next, low), high)
        while places := reader.places(*at, self._next, _SLICE):
            for log_offset, size, _ in places:
                record = reader.record((log_offset, size, 0)) if reader.is_place(log_offset, size) else None
                if record is not None:
                    self._apply(record.properties, log_offset)
            self._next += len(places)
            count += len(places)
            yield

    def _apply(self, properties: bytes, log_offset: int) -> None:
        state = order_records.read(properties)
        if state is None:
            self.unreadable += 1
            return
        queue = state.queue
        self._is_changed = True
        self.last_dead = None if state.dead is None else LastDead(state, log_offset)
        present = self._present.get(queue)
        if present is not None and present.log_offset <= log_offset:
            del self._present[queue]
        if self._store.reader.is_buried(queue[1], log_offset):
            self._confirmed.pop(queue, None)
        elif queue in self._confirmed or len(self._confirmed) < self._queues_max:
            self._confirmed[queue] = Kept(state.batch, log_offset)

    def tidy(self, is_gone: Callable[[Queue], bool], now_ms: int) -> Iterator[None]:
        """Forget batches of queues that are gone or were reset, and those that were not used for a day; in slices.

        The place of a reset is forgotten with its part of the log, and must not let an older batch count again.
        """
        for number, (queue, kept) in enumerate(list(self._confirmed.items()), 1):
            known = self._confirmed.get(queue) is kept and queue not in self._present
            if known and (kept.batch.is_idle(now_ms) or is_gone(queue) or self.get(queue) is None):
                del self._confirmed[queue]
                self._is_changed = True
            if number % _SLICE == 0:
                yield

    def forget(self, is_gone: Callable[[Queue], bool]) -> None:
        """Forget batches of queues that are gone now; a queue of the same name begins again."""
        for queue in [queue for queue in self.queues() if is_gone(queue)]:
            self._confirmed.pop(queue, None)
            self._present.pop(queue, None)
            self._is_changed = True

    def saving(self) -> Generator[None, None, None]:
        """Save the document that is durable by now, and compute the next one, in slices; on every member."""
        yield from self.catch_up()  # a slave has not read what came before its start
        if self._waiting is not None:
            document, log_end = self._waiting
            if self._store.flushed.offset < log_end:
                return
            self._waiting = None
            self._state.save(document)
        else:
            self._state.retry()
        if self._is_changed:
            self._is_changed = False
            begins = self._begins()
            lines = Lines()
            for number, (key, queues) in enumerate(sorted(self._by_key().items()), 1):
                lines.append(line(key, self._queues_json(queues)))
                if number % _SLICE == 0:
                    yield
            self._waiting = {"table": lines, _NEXT: begins}, self._store.dispatched.offset

    def save_now(self) -> None:
        """Save the document before returning; the log is durable as far as it is written."""
        table = {key: self._queues_json(queues) for key, queues in self._by_key().items()}
        self._waiting, self._is_changed = None, False
        self._state.save_now({"table": table, _NEXT: self._begins()})

    def _begins(self) -> int:
        # The last record is read again when its copy for the dead-letter topic may be missing.
        return self._next if self.last_dead is None else max(self._next - 1, 0)

    def _by_key(self) -> dict[str, list[Queue]]:
        table: dict[str, list[Queue]] = {}
        for queue in [queue for queue in self._confirmed if self.get(queue) is not None]:
            table.setdefault(f"{queue[1]}@{queue[0]}", []).append(queue)
        return table

    def _queues_json(self, queues: list[Queue]) -> dict[str, object]:
        found = [(queue, self._confirmed[queue]) for queue in queues if queue in self._confirmed]
        return {str(queue[2]): kept.batch.to_json() | {_LOG_OFFSET: kept.log_offset} for queue, kept in found}

    def _load(self) -> None:
        found = self._state.load()
        if found is None:
            return
        try:
            self._next = max(documents.integer(found, _NEXT), 0)
            for key, queues in documents.mapping(found, "table").items():
                topic, _, group = key.partition("@")
                for queue_id, value in documents.document(queues, f"queues of {key}").items():
                    self._read((group, topic, int(queue_id)), value)
        except ValueError as error:
            advice = "restore it, or remove it to forget which messages are being handled in order"
            raise StoreError(f"consumerOrderInfo.json: {error}; {advice}") from error
        if self._is_changed:
            # Else the next start finds the log grown again, and takes its new records for those that were lost.
            with contextlib.suppress(StoreError):  # a full disk: the next save tries it again
                self.save_now()

    def _read(self, queue: Queue, value: object) -> None:
        what = f"{queue[1]}@{queue[0]} queue {queue[2]}"
        batch = order.from_json(value, what)
        log_offset = documents.integer(documents.document(value, what), _LOG_OFFSET)
        is_buried = self._store.reader.is_buried(queue[1], log_offset)
        if log_offset >= self._store.written.offset:
            # The log lost its end since (a slave cut what its master does not have): an older record of this queue is
            # the newest by now.
            batch, self._next = None, 0
        # RocketMQ's document may be of a longer log than this one; its numbers are given again.
        is_here = batch is not None and batch.offsets[-1] < self._store.next_queue_offset(queue[1], queue[2])
        if batch is not None and is_here and not is_buried and len(self._confirmed) < self._queues_max:
            self._confirmed[queue] = Kept(batch, log_offset)
        else:
            self._is_changed = True
