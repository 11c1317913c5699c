"""The committed offsets by `topic@group`, with what is found in them by topic or by group, and their texts in the file.

The number of keys is bounded, because anybody may commit for any group and topic that there is.  A group may have as
many as are left for others, and so may a topic: one alone gets half of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.model import names
from gantry.store.lineblocks import LineBlocks

KEYS_MAX = 500_000  # some 600 bytes each, with one queue


class OffsetTable(dict[str, dict[int, int]]):
    """Offsets by queue id, by `topic@group`; written by its own methods only, and `changed` after each change."""

    def __init__(self, table: Mapping[str, dict[int, int]]) -> None:
        super().__init__(table)
        # Leases first: the offset of a handled one may not be saved before the offset that it moved.
        self.lines = LineBlocks(self.value, is_first=lambda key: key.endswith(names.REVIVE_GROUP))
        self.lines.fill(table)
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        for key in table:
            self._enter(key)

    def has_room(self, topic: str, group: str) -> bool:
        """Return whether a new key of these fits."""
        free = KEYS_MAX - len(self)
        return len(self._groups.get(topic, ())) < free and len(self._topics.get(group, ())) < free

    def put(self, key: str, queues: dict[int, int]) -> dict[int, int]:
        """Set the offsets of a key; return them."""
        self._enter(key)
        self[key] = queues
        self.lines.changed.add(key)
        return queues

    def take_out(self, key: str) -> dict[int, int] | None:
        """Remove a key; return its offsets, None when there are none."""
        queues = self.pop(key, None)
        if queues is not None:
            topic, _, group = key.partition("@")
            _remove(self._groups, topic, group)
            _remove(self._topics, group, topic)
            self.lines.changed.add(key)
        return queues

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets of a topic; in a broadcasting group its members, `group@client id`."""
        return list(self._groups.get(topic, ()))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets of."""
        return list(self._topics.get(group, ()))

    def keys_of_group(self, group: str) -> list[str]:
        """Return the keys of a group, and those of its members where it is broadcasting."""
        readers = [one for one in self._topics if one == group or one.startswith(f"{group}@")]
        return [f"{topic}@{one}" for one in readers for topic in self._topics[one]]

    def value(self, key: str) -> dict[str, int] | None:
        """Return the offsets of a key as they are saved and sent; None when there are none."""
        queues = self.get(key)
        return None if queues is None else {str(queue_id): offset for queue_id, offset in queues.items()}

    def _enter(self, key: str) -> None:
        topic, _, group = key.partition("@")
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None


def _remove(table: dict[str, dict[str, None]], key: str, one: str) -> None:
    names_there = table[key]
    del names_there[one]
    if not names_there:
        del table[key]
