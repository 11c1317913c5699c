"""Queues whose readers have to go on elsewhere and may not know yet.  RocketMQ 5: `resetOffsetTable`.

A mark names a reader of a topic, a queue of it and the offset where the reader has to go on: its group was reset while
at work, or the topic was deleted and what comes under its name begins at 0.  Until the reader has moved, nothing that
it says about its progress in that queue is believed, because it speaks of what was before; and nothing that it pulls
is given to it, because it would take the middle of something new for the rest of something old.

    told by a pull       answered PULL_OFFSET_MOVED; moved when it pulls at the target, or anywhere but there again
    told by a request    it asked where to go on, or was sent there (220); moved when it pulls at the target

Anyone who pulls 0 and has to go to 0 has nothing to forget.  A reader is a group; in a broadcasting group, where every
member has progress of its own, it is a member: `group@client id`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

NEVER_TOLD = -1
_BY_REQUEST = -2

# Readers of topics that were deleted and never come back leave their marks here until a start finds them useless.
_READERS_MAX = 100_000


class ResetMarks:
    """By `topic@reader` and queue id; one owner, the offsets."""

    def __init__(self, table: dict[str, dict[int, int]]) -> None:
        self._table = table
        self.topics = Counter(_topic(key) for key in table)  # marked readers by topic: asked with every pull
        self._told: dict[tuple[str, int], int] = {}  # where the reader was when a pull told it
        self.touched: set[str] | None = None  # `topic@reader` of what changed, where somebody takes it

    def __bool__(self) -> bool:
        return bool(self._table)

    def put(self, key: str, queue_id: int, target: int) -> None:
        """The reader has to go on at target."""
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
        """The reader heard by a request."""
        self._told[key, queue_id] = _BY_REQUEST

    def pulled(self, key: str, queue_id: int, offset: int) -> bool:
        """The marked reader pulls: whether it has moved; else it is told now."""
        target, told_at = self._table[key][queue_id], self._told.get((key, queue_id), NEVER_TOLD)
        if offset == target == 0 or (told_at != NEVER_TOLD and offset == target):
            return True
        if told_at >= 0 and offset != told_at:
            return True
        self._told[key, queue_id] = offset
        return False

    def lift(self, key: str, queue_id: int) -> bool:
        """The mark is over; false when there was none."""
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
        """Forget these readers; whether there was anything to forget."""
        gone = [(key, queue_id) for key in keys for queue_id in self._table.get(key, ())]
        for one in gone:
            self.lift(*one)
        return bool(gone)

    def keys(self) -> list[str]:
        """All marked `topic@reader`."""
        return list(self._table)

    def value(self, key: str) -> dict[str, int] | None:
        """A reader's marks as a slave is told them; None when there are none."""
        marked = self._table.get(key)
        return None if marked is None else {str(queue_id): target for queue_id, target in marked.items()}

    def follow(self, key: str, wanted: Mapping[int, int]) -> bool:
        """Take over what the master has; whether that is news."""
        known = dict(self._table.get(key, {}))
        for queue_id in known.keys() - wanted.keys():
            self.lift(key, queue_id)
        for queue_id, target in wanted.items():
            if known.get(queue_id) != target:
                self.put(key, queue_id, target)
        return known != wanted

    def _touch(self, key: str) -> None:
        if self.touched is not None:
            self.touched.add(key)

    def to_document(self) -> Mapping[str, Mapping[int, int]]:
        """What is saved."""
        return {key: dict(queues) for key, queues in self._table.items()}


def _topic(key: str) -> str:
    return key.partition("@")[0]
