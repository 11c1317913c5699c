"""How far each group has pulled in each queue, in memory only: RocketMQ's `pullOffset`.

Tools show the difference to the committed offset as messages that are with consumers.
"""

from __future__ import annotations


class PulledOffsets:
    """The offset behind the last pulled message, by `topic@group` and queue id.

    Only groups and queues that passed the checks of a pull are in it, so the table is bounded by the metadata's.
    """

    def __init__(self) -> None:
        self._table: dict[tuple[str, str], dict[int, int]] = {}

    def note(self, group: str, topic: str, queue_id: int, following: int) -> None:
        """Note how far a pull of the group got, or where it was sent back to."""
        queues = self._table.get((topic, group))
        if queues is None:
            queues = self._table[topic, group] = {}
        queues[queue_id] = following

    def of(self, group: str, topic: str, queue_id: int, committed: int, end: int) -> int:
        """Return how far the group has pulled: from its committed offset to the queue's end."""
        return min(max(self._table.get((topic, group), {}).get(queue_id, 0), committed), max(end, committed))

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Forget what was pulled before a reset."""
        self._table.get((topic, group), {}).pop(queue_id, None)

    def forget_topic(self, topic: str) -> None:
        """Forget a deleted topic."""
        for key in [key for key in self._table if key[0] == topic]:
            del self._table[key]

    def forget_group(self, group: str) -> None:
        """Forget a group whose offsets are deleted."""
        for key in [key for key in self._table if key[1] == group]:
            del self._table[key]
