"""Marks: queues whose readers have to move to another offset and may not know it yet.  RocketMQ 5: `resetOffsetTable`.

A mark names a reader of a topic, a queue of it and the offset where the reader has to go on.  It is set when a group is
reset while members are consuming, or when the topic is deleted: a new one of its name begins at 0.  Until the reader
has moved, its commits in that queue are ignored, because they are about the former messages.  Its pulls get no
messages, because it would take them for the continuation of the former ones.

    told by a pull       answered PULL_OFFSET_MOVED; moved when it pulls at the target, or at any other new offset
    told by a request    it queried its offset, or got a reset (220); moved when it pulls at the target

A reader that pulls 0 and has to go to 0 counts as moved.  A reader is a group; in a broadcasting group, where every
member has its own progress, it is a member: `group@client id`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gantry.store.lineblocks import LineBlocks

NEVER_TOLD = -1
_BY_REQUEST = -2

# Marks of topics that were deleted and never made again stay here until a start removes them.
_READERS_MAX = 100_000


class ResetMarks:
    """The marks by `topic@reader` and queue id; only `Offsets` uses them."""

    def __init__(self, table: dict[str, dict[int, int]]) -> None:
        self._table = table
        self.lines = LineBlocks(self.value)
        self.lines.fill(table)
        self.topics = Counter(_topic(key) for key in table)  # marked readers by topic: asked with every pull
        self._told: dict[tuple[str, int], int] = {}  # the offset that the reader pulled when a pull told it
        self.touched: set[str] | None = None  # `topic@reader` of changed marks, for replication; None without

    def __bool__(self) -> bool:
        return bool(self._table)

    def put(self, key: str, queue_id: int, target: int) -> None:
        """Mark a queue: the reader has to go on at target."""
        self._told.pop((key, queue_id), None)
        if key not in self._table:
            self._table[key] = {}
            self.topics[_topic(key)] += 1
        self._table[key][queue_id] = target
        self._touch(key)
        if len(self._table) > _READERS_MAX:
            self.remove([next(iter(self._table))])

    def target(self, key: str, queue_id: int) -> int | None:
        """Where the reader has to go on; None when it is not marked."""
        return self._table.get(key, {}).get(queue_id)

    def queues(self, key: str) -> list[int]:
        """The marked queues of a reader."""
        return list(self._table.get(key, ()))

    def told(self, key: str, queue_id: int) -> None:
        """Record that the reader got the target by a request."""
        self._told[key, queue_id] = _BY_REQUEST

    def pulled(self, key: str, queue_id: int, offset: int) -> bool:
        """Return whether a marked reader that pulls at this offset has moved; if not, this pull tells it."""
        target, told_at = self._table[key][queue_id], self._told.get((key, queue_id), NEVER_TOLD)
        if offset == target == 0 or (told_at != NEVER_TOLD and offset == target):
            return True
        if told_at >= 0 and offset != told_at:
            return True
        self._told[key, queue_id] = offset
        return False

    def lift(self, key: str, queue_id: int) -> bool:
        """Remove the mark; return False when there was none."""
        marked = self._table.get(key, {})
        if marked.pop(queue_id, None) is None:
            return False
        self._told.pop((key, queue_id), None)
        self._touch(key)
        if not marked:
            del self._table[key]
            self.topics[_topic(key)] -= 1
            if not self.topics[_topic(key)]:
                del self.topics[_topic(key)]
        return True

    def remove(self, keys: Iterable[str]) -> bool:
        """Remove all marks of these readers; return whether there were any."""
        gone = [(key, queue_id) for key in keys for queue_id in self._table.get(key, ())]
        for one in gone:
            self.lift(*one)
        return bool(gone)

    def keys(self) -> list[str]:
        """Return every marked reader as `topic@reader`."""
        return list(self._table)

    def value(self, key: str) -> dict[str, int] | None:
        """Return a reader's marks as they are sent to a slave; None when there are none."""
        marked = self._table.get(key)
        return None if marked is None else {str(queue_id): target for queue_id, target in marked.items()}

    def follow(self, key: str, wanted: Mapping[int, int]) -> bool:
        """Take over the master's marks of a reader; return whether they differ."""
        known = dict(self._table.get(key, {}))
        for queue_id in known.keys() - wanted.keys():
            self.lift(key, queue_id)
        for queue_id, target in wanted.items():
            if known.get(queue_id) != target:
                self.put(key, queue_id, target)
        return known != wanted

    def _touch(self, key: str) -> None:
        self.lines.changed.add(key)
        if self.touched is not None:
            self.touched.add(key)


def _topic(key: str) -> str:
    return key.partition("@")[0]
