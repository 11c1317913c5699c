"""The queue-base table: the first and the next offset of every queue, so that none ever begins at 0 again.

A queue whose records have all expired and whose files are gone would be rebuilt as a new one, and consumers
who stand at 5000 would never see its next 5000 messages.  The table also tells a start that a queue's files
lack entries, and which records belong to a deleted topic (gravestones: topic -> log offset of its deletion).

`log_offset`: the table knows all records below it.  Retention may cut the log only up to there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.store import filenames, statefile
from gantry.store.disk import Disk


class QueueEnds(NamedTuple):
    """One queue of the table."""

    topic: str
    queue_id: int
    first: int
    following: int


class QueueBase(NamedTuple):
    """First and next offset by topic and queue id, and where topics were deleted."""

    log_offset: int
    ends: dict[str, dict[int, tuple[int, int]]]
    gravestones: dict[str, int]

    def queues(self) -> Iterator[QueueEnds]:
        """Yield every queue of the table with its first and next offset."""
        for topic, queues in self.ends.items():
            for queue_id, (first, following) in queues.items():
                yield QueueEnds(topic, queue_id, first, following)

    def first(self, topic: str, queue_id: int) -> int:
        """The first offset that a queue's files had; 0 for a queue that is younger than the table."""
        return self.ends.get(topic, {}).get(queue_id, (0, 0))[0]

    def following(self, topic: str, queue_id: int) -> int:
        """The next offset that a queue had; 0 for a queue that is younger than the table."""
        return self.ends.get(topic, {}).get(queue_id, (0, 0))[1]


def without(base: QueueBase, topics: Collection[str]) -> QueueBase:
    """Return the table without these topics."""
    ends = {topic: queues for topic, queues in base.ends.items() if topic not in topics}
    graves = {topic: begins for topic, begins in base.gravestones.items() if topic not in topics}
    return base._replace(ends=ends, gravestones=graves)


def save(disk: Disk, root: str, base: QueueBase) -> None:
    """Write the table; it is durable when this returns."""
    table = {"logOffset": base.log_offset, "queues": base.ends, "deleted": base.gravestones}
    statefile.replace(disk, filenames.queue_base(root), statefile.to_bytes(table))


def load(disk: Disk, root: str) -> QueueBase:
    """The table; an empty one when there is none (a store that only RocketMQ has written) or it is damaged.

    The table is optional: without it queues are as their files and the log say.
    """
    try:
        table = statefile.read_object(disk, filenames.queue_base(root)) or {}
        return QueueBase(
            _integer(table.get("logOffset", 0)),
            {
                topic: {int(queue_id): _pair(ends) for queue_id, ends in _table(queues).items()}
                for topic, queues in _table(table.get("queues", {})).items()
            },
            {topic: _integer(offset) for topic, offset in _table(table.get("deleted", {})).items()},
        )
    except (StoreError, ValueError):
        return QueueBase(0, {}, {})


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a number")
    return value


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    return value


def _pair(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair")
    return _integer(value[0]), _integer(value[1])
