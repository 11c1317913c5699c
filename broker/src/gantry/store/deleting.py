"""Deleting a topic's queues.

From memory they are removed at once.  The table of all other queues is made in slices, one for each tick.  On disk
first the generation and its gravestone are made durable, then the folder is removed, in one job.  Until it succeeded no
checkpoint begins, because a new queue of the same name would write its entries among the old ones.  `asked` counts
deletions, `kept` those that are durable: no crash undoes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from gantry.errors import DiskFullError, StoreError
from gantry.store import filenames, generations, queuebase
from gantry.store.background import Worker
from gantry.store.disk import Disk
from gantry.store.generations import TopicGeneration
from gantry.store.queuebase import QueueBase
from gantry.store.queuetable import QueueTable
from gantry.store.reserve import Reserve


class Deleting:
    """Loop thread only, but for the job."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        table: QueueTable,
        housekeeper: Worker,
        reserve: Reserve,
        on_failed: Callable[[StoreError], None],
    ) -> None:
        self._disk = disk
        self._root = root
        self._table = table
        self._housekeeper = housekeeper
        self._reserve = reserve
        self._on_failed = on_failed
        self._topics: dict[str, int] = {}  # with the number of the deletion
        self._is_running = False
        self._walk: Iterator[QueueBase | None] | None = None  # over the table, before the job
        self._kept_listeners: list[Callable[[], None]] = []
        self._deleted_listeners: list[Callable[[str], None]] = []
        self.asked = 0
        self.kept = 0

    @property
    def is_pending(self) -> bool:
        """Whether folders of deleted topics may still be there, or a table of older queues is to be written."""
        return bool(self._topics) or self._walk is not None

    def on_deleted(self, listener: Callable[[str], None]) -> None:
        """Register a listener for topics whose queues were deleted; their next generation has begun by then."""
        self._deleted_listeners.append(listener)

    def on_kept(self, listener: Callable[[], None]) -> None:
        """Register a listener that is called when deletions have become durable."""
        self._kept_listeners.append(listener)

    def delete(self, topic: str, log_end: int, durable_end: int, generation: int | None = None) -> None:
        """Forget the topic's queues; its records below log_end never come back.  generation: the one that a master
        gave to what may follow.
        """
        self._table.delete(topic, log_end, generation)
        for listener in self._deleted_listeners:
            listener(topic)
        self.asked += 1
        self._topics[topic] = self.asked
        self.go_on(durable_end)

    def number(self, topic: str, life: TopicGeneration, durable_end: int) -> None:
        """Set the topic's generation and keep its queues: records that it would hide are gone from the log already."""
        self._table.generations.take(topic, life)
        self.asked += 1
        self.go_on(durable_end)

    def go_on(self, durable_end: int) -> None:
        """One slice of the work for all deletions that are not durable yet; after the last one the job is submitted."""
        if self._is_running or self.kept == self.asked:
            return
        if self._walk is None:
            self._walk = self._table.base(durable_end)
        base = next(self._walk)
        if base is None:
            return
        self._walk = None
        topics, lives = dict(self._topics), self._table.generations.to_document()
        self._is_running = True
        job = partial(self._reserve.carry_out, partial(self._job, tuple(topics), base, lives))
        if not self._housekeeper.submit(job, partial(self._done, topics, self.asked)):
            self._is_running = False

    def complete(self) -> None:
        """Submit the job that is being prepared; only while a store closes."""
        while self._walk is not None:
            self.go_on(0)

    def _job(self, topics: tuple[str, ...], base: QueueBase, lives: dict[str, object]) -> None:
        generations.save(self._disk, self._root, lives)
        queuebase.save(self._disk, self._root, base)
        for topic in topics:
            self._disk.remove_tree(filenames.topic_queues(self._root, topic))

    def _done(self, topics: dict[str, int], asked: int, error: StoreError | None) -> None:
        self._is_running = False
        if error is None:
            for topic, number in topics.items():
                if self._topics[topic] == number:  # else it was made and deleted again meanwhile
                    del self._topics[topic]
            self.kept = asked
            for listener in self._kept_listeners:
                listener()
        elif not isinstance(error, DiskFullError):
            self._on_failed(error)
