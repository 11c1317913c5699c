"""The first offsets of groups in queues: they are durable before they are answered.

A slave counts also what else its master answers when the slave has it on its disk (`Offsets.follow`).
"""

from __future__ import annotations


class FirstOffsets:
    """Numbers the first offsets since the start, and knows the newest of each group that is not durable yet."""

    def __init__(self) -> None:
        self.count = 0
        self._newest: dict[str, int] = {}  # by `topic@group`

    def add(self, key: str) -> None:
        """Count a first offset of this `topic@group`."""
        self.count += 1
        self._newest[key] = self.count

    def newest(self, group: str, topic: str) -> int:
        """Return the number of the group's newest first offset in the topic; 0 when all of them are durable."""
        return self._newest.get(f"{topic}@{group}", 0)

    def saved(self, number: int) -> None:
        """Note that those up to this number are durable."""
        self._newest = {key: newest for key, newest in self._newest.items() if newest > number}
