"""All consume queues: by topic and queue id, with the files below them and the offsets that the next records get.

Two ends belong to a queue.  `ConsumeQueue.next` is where dispatching stands and what consumers see; the head
is what the next appended record gets, ahead of it by what is written but not confirmed.

A deleted topic leaves a gravestone: the log offset at which it was deleted.  Its records stay in the log; when queues
are rebuilt from the log, they must not come back under the offsets of a topic of the same name.  The
deletion's number is the generation of a later topic of that name (`generations`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from gantry.store import filenames
from gantry.store.coldrange import ColdRange
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import Disk
from gantry.store.generations import Generations
from gantry.store.queuebase import QueueBase
from gantry.store.queuefiles import ENTRY_BYTES, FILLER, QueueFiles, Tail

QueueKey = tuple[str, int]
# A look at a queue takes a microsecond; a search in its files fifty, and more where one has to be opened.
_SEARCH_COST = 50
_SLICE_COST = 2500
_LOOKED_AT_ONCE = 1000
# Of a queue-base table that is made by itself: 2.4 us a queue.
BASE_SLICE = 1000


class QueueTable:
    """All queues of a store, by topic and queue id.  Loop thread only."""

    def __init__(self, disk: Disk, root: str, files: QueueFiles) -> None:
        self._disk = disk
        self._root = root
        self.files = files
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._dirty: dict[QueueKey, ConsumeQueue] = {}
        # The ids of each topic that may be in the tables by queue, so that a deletion does not look at other topics.
        self._ids: dict[str, set[int]] = {}
        self.heads: dict[QueueKey, int] = {}
        self.gravestones: dict[str, int] = {}
        self.generations = Generations(0, {})
        # Bytes of the records that came since the store was opened, by topic: a statistic.
        self.came: dict[str, int] = {}
        # Memory held by tails.
        self.tail_bytes = 0
        # How often a queue came or went: the queue-base table is written again then.
        self.changes = 0
        # How many topics were deleted.
        self.deletions = 0

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it has ever had a message (or its next offset is remembered)."""
        return self._queues.get((topic, queue_id))

    def adopt(self, queue: ConsumeQueue) -> None:
        """Add a queue whose files were loaded."""
        self._queues[(queue.topic, queue.queue_id)] = queue
        self.note_ids([(queue.topic, queue.queue_id)])

    def note_ids(self, keys: Iterable[QueueKey]) -> None:
        """Note queues that get an entry in `heads`; a deletion of their topic finds them then."""
        for topic, queue_id in keys:
            self._ids.setdefault(topic, set()).add(queue_id)

    def create(self, topic: str, queue_id: int, first: int) -> ConsumeQueue:
        """A queue that begins, or goes on after all its records are gone, at offset `first`."""
        queue = ConsumeQueue(topic, queue_id, filenames.queue(self._root, topic, queue_id), self.files, first)
        self.adopt(queue)
        self.changes += 1
        return queue

    def go_on(self, topic: str, queue_id: int, following: int) -> None:
        """Let a queue go on at `following` at the earliest; blocks, only while a store opens.

        What it lacks before that is lost for good (or expired) and becomes fillers, which are never read.
        """
        queue = self.get(topic, queue_id)
        if queue is None:
            queue = self.create(topic, queue_id, following)
            self.files.establish(queue.folder, following)
        elif queue.next < following:
            self.add(queue, FILLER * (following - queue.next), queue.log_end)

    def add(self, queue: ConsumeQueue, entries: bytes, log_end: int) -> None:
        """Add packed entries to a queue's tail."""
        queue.put(entries, log_end)
        self._dirty[(queue.topic, queue.queue_id)] = queue
        self.tail_bytes += len(entries)

    def raise_heads(self) -> None:
        """After recovery: appends go on where dispatching ended."""
        self.heads = {key: queue.next for key, queue in self._queues.items()}

    def pending(self, log_end: int) -> list[tuple[ConsumeQueue, Tail]]:
        """The tails to be written now: entries of records that end at or below log_end."""
        return tails_of(self._dirty.values(), log_end)

    def dirty(self) -> list[ConsumeQueue]:
        """The queues that have entries which are not in their files."""
        return list(self._dirty.values())

    def settle(self, written: Iterable[tuple[ConsumeQueue, Tail]]) -> None:
        """Remove tails that are now in their files from memory; queues deleted meanwhile are ignored."""
        for queue, tail in written:
            key = (queue.topic, queue.queue_id)
            if self._queues.get(key) is queue:
                queue.settle(tail)
                self.tail_bytes -= len(tail.entries)
                if queue.stored == queue.next:
                    self._dirty.pop(key, None)

    def drop(self, topic: str, queue_id: int) -> None:
        """Remove a queue's files so that it can be built again from the log; only while a store opens."""
        self.files.forget(filenames.queue(self._root, topic, queue_id))
        self._forget((topic, queue_id))
        self._disk.remove_tree(filenames.queue(self._root, topic, queue_id))

    def delete(self, topic: str, log_end: int, generation: int | None = None) -> None:
        """Forget a topic's queues, half a microsecond each; records below log_end will not come back.  The files are
        the caller's.

        generation: of what may follow, where a master has given it.
        """
        self.files.forget(filenames.topic_queues(self._root, topic))
        for queue_id in self._ids.pop(topic, ()):
            self._forget((topic, queue_id))
            self.heads.pop((topic, queue_id), None)
        self.came.pop(topic, None)
        self.bury(topic, log_end, generation)
        self.changes += 1
        self.deletions += 1

    def bury(self, topic: str, log_end: int, generation: int | None = None) -> None:
        """Set the topic's gravestone: its records below log_end will not come back."""
        self.gravestones[topic] = log_end
        self.generations.begin(topic, log_end, generation)

    def _forget(self, key: QueueKey) -> None:
        self._dirty.pop(key, None)
        queue = self._queues.pop(key, None)
        if queue is not None:
            self.tail_bytes -= (queue.next - queue.stored) * ENTRY_BYTES

    def drop_before(self, log_start: int) -> Iterator[list[str] | ColdRange]:
        """Forget queue files whose records are all gone, and gravestones that the log has passed; paths to unlink.

        In slices, some milliseconds each: a queue of one file costs a look, others a search in an old file, whose pages
        are told before they are looked at, where they are not in memory.  Queues that are deleted in between are left
        out.
        """
        self.gravestones = {topic: end for topic, end in self.gravestones.items() if end > log_start}
        paths: list[str] = []
        topics: set[str] = set()
        cost, changes = 0, self.changes
        for queue in list(self):
            cost += 1
            topics.add(queue.topic)
            if queue.has_files_before_its_last:
                cost += _SEARCH_COST
                yield from self._to_search(queue, log_start)
                dropped = queue.drop_before(log_start) if self._has(queue) else []
                if dropped:
                    self.files.forget(queue.folder)
                    paths += [filenames.by_offset(queue.folder, first * ENTRY_BYTES) for first in dropped]
            if cost >= _SLICE_COST:
                yield paths
                paths, cost = [], 0
        if self.changes == changes:  # else the next search knows the queues that came
            self.generations.forget(log_start, topics)
        yield paths

    def _has(self, queue: ConsumeQueue) -> bool:
        return self._queues.get((queue.topic, queue.queue_id)) is queue

    def _to_search(self, queue: ConsumeQueue, log_start: int) -> Iterator[ColdRange]:
        """Yield what is to be read before it is known which of a queue's records are gone."""
        brought: set[ColdRange] = set()
        while self._has(queue):
            cold = self.files.look(partial(queue.min_offset, log_start), brought)
            if not isinstance(cold, ColdRange):
                return
            brought.add(cold)
            yield cold

    def expired_ends(self, log_start: int) -> Iterator[dict[str, dict[str, int]]]:
        """The next offsets of queues of which all records lie before log_start, by topic and queue id, in slices."""
        queues = list(self)
        for at in range(0, len(queues), _LOOKED_AT_ONCE):
            ends: dict[str, dict[str, int]] = {}
            for queue in queues[at : at + _LOOKED_AT_ONCE]:
                key = queue.topic, queue.queue_id
                is_expired = 0 < self.heads.get(key, 0) == queue.next and queue.log_end <= log_start
                if is_expired and self._has(queue):
                    ends.setdefault(queue.topic, {})[str(queue.queue_id)] = queue.next
            yield ends

    def base(self, log_end: int) -> Iterator[QueueBase | None]:
        """The queue-base table of the records that end at or below log_end, in slices: None between them, the table at
        the end.  Its topics are those that exist then; all records of queues that came meanwhile lie behind log_end.
        """
        base = QueueBase(log_end, {}, {})
        before, queues = dict(self.gravestones), list(self)
        for at in range(0, len(queues), BASE_SLICE):
            if at:
                yield None
            some = queues[at : at + BASE_SLICE]
            add_ends(base, [queue for queue in some if self._has(queue)])
        for topic in [topic for topic, end in self.gravestones.items() if before.get(topic) != end]:
            base.ends.pop(topic, None)
        yield base._replace(gravestones=dict(self.gravestones))


def tails_of(queues: Iterable[ConsumeQueue], log_end: int) -> list[tuple[ConsumeQueue, Tail]]:
    """What of these queues belongs into their files: entries of records that end at or below log_end."""
    found = [(queue, queue.pending(log_end)) for queue in queues]
    return [(queue, tail) for queue, tail in found if tail is not None]


def add_ends(base: QueueBase, queues: Iterable[ConsumeQueue]) -> None:
    """Put these queues into the table."""
    for queue in queues:
        base.ends.setdefault(queue.topic, {})[queue.queue_id] = (queue.first, queue.reach(base.log_offset))
