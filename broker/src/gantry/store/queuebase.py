"""The queue-base table: the next offset of every queue, so that none ever begins at 0 again.

A queue whose records have all expired and whose files are gone would be rebuilt as a new one, and consumers
who stand at 5000 would never see its next 5000 messages.  The table also tells a start that a queue's files
lack entries, and which records belong to a deleted topic (gravestones: topic -> log offset of its deletion).

`log_offset`: the table knows all records below it.  Retention may cut the log only up to there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gantry.store import filenames, statefile
from gantry.store.disk import Disk


class QueueBase(NamedTuple):
    """Next offsets by topic and queue id."""

    log_offset: int
    following: dict[str, dict[int, int]]
    gravestones: dict[str, int]

    def queues(self) -> Iterator[tuple[str, int, int]]:
        """(topic, queue id, next offset) of every queue."""
        for topic, offsets in self.following.items():
            for queue_id, following in offsets.items():
                yield topic, queue_id, following


def save(disk: Disk, root: str, base: QueueBase) -> None:
    """Write the table, durably."""
    table = {"logOffset": base.log_offset, "next": base.following, "deleted": base.gravestones}
    statefile.replace(disk, filenames.queue_base(root), statefile.to_bytes(table))


def load(disk: Disk, root: str) -> QueueBase | None:
    """The table; None when there is none (a store that only RocketMQ has written)."""
    table = statefile.read_object(disk, filenames.queue_base(root))
    if table is None:
        return None
    log_offset, following, deleted = table.get("logOffset"), table.get("next"), table.get("deleted")
    if not isinstance(log_offset, int) or not isinstance(following, dict) or not isinstance(deleted, dict):
        return None
    return QueueBase(
        log_offset,
        {
            topic: {int(queue_id): int(offset) for queue_id, offset in offsets.items()}
            for topic, offsets in following.items()
        },
        {topic: int(offset) for topic, offset in deleted.items()},
    )
