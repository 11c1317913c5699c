"""How long the batch of an orderly pop locks its queue, and when the lock ends.

    by time     until all messages that are not acknowledged are visible again (`order`)
    by owner    for longer, while the client that popped the batch as its owner lives (`owners`), for 3 h at most after
                the pop.  Not when it gave a message another time: then it has given the batch up

Nothing is written while a lock lasts longer because of its owner: the batch in the log names the owner, and a new
master counts every owner as alive until it had the time to say so.  Handles stay valid, because the pop time is the
same.

The present time for a batch is its pop time plus what has passed since then.  After the wall clock was set forwards, it
is behind the wall clock by as much.

`ended` is called about ten times a second.  A queue whose owner lives is looked at again after 5 s; a pop that comes
meanwhile asks by itself, so this only delays pops that wait when an owner went silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from gantry.clock import SteadyClock
from gantry.pop.book import Queue
from gantry.pop.order import OrderedBatch
from gantry.pop.order_table import OrderTable

AGAIN_MS = 5_000
_STALE_ENDS = 64  # of locks: that many more are kept than there are queues

Keeps = Callable[[str, str, int], bool]
"""Whether an owner keeps what it popped in a group: its id, the group, the pop time in ms."""


class OrderLocks:
    """The locks of all batches, and a heap of their ends.  Loop thread only."""

    def __init__(self, table: OrderTable, clock: SteadyClock) -> None:
        self.keeps: Keeps = lambda owner, group, pop_ms: False
        self._table = table
        self._clock = clock
        self._ends: list[tuple[int, Queue]] = []  # a heap
        self._end_of: dict[Queue, int] = {}  # when each queue is looked at next

    def is_locked(self, queue: Queue, batch: OrderedBatch, attempt_id: str = "") -> bool:
        """Return whether this attempt may get nothing of the queue now."""
        return batch.is_locked(attempt_id, self._clock.time_of(batch.pop_ms)) or (
            batch.is_renewable
            and not batch.is_repeated_by(attempt_id)
            and self.keeps(batch.owner, queue[0], batch.pop_ms)
        )

    def watch(self, queue: Queue, batch: OrderedBatch | None) -> None:
        """Look at a queue when its lock ends."""
        end_ms = 0 if batch is None else batch.visible_at_ms
        if end_ms:
            self._look(queue, end_ms)

    def ended(self) -> Iterator[Queue]:
        """Yield the queues whose messages have become visible again."""
        now_ms = self._clock.now_ms()
        while self._ends and self._ends[0][0] <= now_ms:
            at_ms, queue = heappop(self._ends)
            if self._end_of.get(queue) != at_ms:
                continue
            del self._end_of[queue]
            batch = self._table.get(queue)
            if batch is None or not batch.outstanding:
                continue
            left_ms = batch.visible_at_ms - self._clock.time_of(batch.pop_ms)
            if left_ms > 0:
                self._look(queue, now_ms + left_ms)
            elif self.is_locked(queue, batch):
                self._look(queue, now_ms + AGAIN_MS)
            else:
                yield queue

    def _look(self, queue: Queue, at_ms: int) -> None:
        if self._end_of.get(queue, at_ms + 1) <= at_ms:
            return
        self._end_of[queue] = at_ms
        heappush(self._ends, (at_ms, queue))
        if len(self._ends) > 2 * len(self._end_of) + _STALE_ENDS:
            self._ends = [(at_ms, one) for one, at_ms in self._end_of.items()]
            heapify(self._ends)
