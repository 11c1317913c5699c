"""Deleting a topic's queues.

From memory they are removed at once.  The table of all other queues is made in slices.  On disk first the generation
and its gravestone are made durable: then the topic is deleted, whatever a start finds of its folder.  The folder is
removed after that, some queues at a time, so that other file jobs do not wait, and neither do later deletions: these
are made durable first, with one job for folders after each.  Until all folders are gone no checkpoint
begins, because a new queue of the same name would write its entries among the old ones.  `asked` counts deletions,
`kept` those that are durable: no crash undoes them.
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

# Of a topic, in one job: some 60 us each.
_QUEUES_AT_ONCE = 2000


class Deleting:
    """Loop thread only, but for the jobs."""

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
        self._topics: dict[str, int] = {}  # of which folders may be there, with the number of the deletion
        self._is_running = False
        self._has_failed = False
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

    def go_on(self, durable_end: int) -> bool:
        """One slice of the work for all deletions that are not durable yet; after the last one the job is submitted.
        Return whether there is another slice to do now.
        """
        if self._is_running:
            return False
        if self.kept == self.asked:
            self._remove(dict(self._topics))  # what found no room in the housekeeper's queue, or on the disk
            return False
        if self._walk is None:
            self._walk = self._table.base(durable_end)
        base = next(self._walk)
        if base is None:
            return True
        self._walk = None
        topics, lives = dict(self._topics), self._table.generations.to_document()
        job = partial(self._reserve.carry_out, partial(self._keep, base, lives))
        self._is_running = True
        if not self._housekeeper.submit(job, partial(self._kept, topics, self.asked)):
            self._is_running = False
        return False

    def complete(self, durable_end: int) -> None:
        """Carry out every deletion that was asked for, with one attempt; blocks, only while a store closes."""
        self._finish()
        if self.kept < self.asked and not self._has_failed:  # asked for while a job was under way
            self.go_on(durable_end)
            self._finish()

    def _finish(self) -> None:
        """Carry out the jobs that are prepared or under way."""
        while self._walk is not None:
            self.go_on(0)
        while self._is_running:
            self._housekeeper.drain()

    def _keep(self, base: QueueBase, lives: dict[str, object]) -> None:
        generations.save(self._disk, self._root, lives)
        queuebase.save(self._disk, self._root, base)

    def _kept(self, topics: dict[str, int], asked: int, error: StoreError | None) -> None:
        self._is_running = False
        if error is None:
            self.kept = asked
            self._remove(topics)
            for listener in self._kept_listeners:
                listener()
        else:
            self._note_failure(error)

    def _remove(self, topics: dict[str, int]) -> None:
        """Submit the next job for the folders of these topics, whose deletion is durable."""
        if not topics:
            return
        topic, left = next(iter(topics)), [True]
        job = partial(self._reserve.carry_out, partial(self._remove_some, topic, left))
        self._is_running = True
        if not self._housekeeper.submit(job, partial(self._removed, topics, left)):
            self._is_running = False

    def _remove_some(self, topic: str, left: list[bool]) -> None:
        folder = filenames.topic_queues(self._root, topic)
        queues = self._disk.list(folder) if self._disk.exists(folder) else []
        if len(queues) <= _QUEUES_AT_ONCE:
            self._disk.remove_tree(folder)
            left.clear()
            return
        for name in queues[:_QUEUES_AT_ONCE]:
            self._disk.remove_tree(f"{folder}/{name}")

    def _removed(self, topics: dict[str, int], left: list[bool], error: StoreError | None) -> None:
        self._is_running = False
        if error is not None:
            self._note_failure(error)
            return
        if not left:
            topic, number = next(iter(topics.items()))
            del topics[topic]
            if self._topics[topic] == number:  # else it was made and deleted again meanwhile
                del self._topics[topic]
        if self.kept == self.asked:  # else a later deletion goes first
            self._remove(topics)

    def _note_failure(self, error: StoreError) -> None:
        if not isinstance(error, DiskFullError):
            self._has_failed = True
            self._on_failed(error)
