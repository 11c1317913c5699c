"""Detecting other clients in the producer group of a transactional producer.

Any member of the group may be checked about a half, so all of them must know how to answer: a plain producer in the
same group drops the check.  Consumers under the same name are suspicious unless they consume what the group sends.
Nothing is refused for it, because it may work by chance; it is counted, logged and listed.

A violation is stored as (group, kind) with the number of times that it was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

PLAIN_SENDS = "plain sends"
CONSUMERS = "consumers of other topics"

_GROUPS_MAX = 10_000
_TOPICS_MAX = 1_000
_NAMES_MAX = 100_000  # topics of all groups; some 100 bytes each


class GroupRule:
    """Groups that send transactions, and violations: other clients that use their names."""

    def __init__(self, say: Callable[[str, str], object]) -> None:
        self.groups: dict[str, dict[str, None]] = {}  # by group: the topics that it sent halves for
        self.violations: dict[tuple[str, str], int] = {}
        self._say = say
        self._names = 0
        self._unknown: set[str] = set()  # groups that sent for more topics than are kept

    def note_half(self, group: str, topic: str) -> None:
        """Record that this group sends transactions for a topic."""
        topics = self.groups.get(group)
        if topics is None:
            if len(self.groups) >= _GROUPS_MAX:
                return
            topics = self.groups[group] = {}
        if topic in topics:
            return
        if len(topics) < _TOPICS_MAX and self._names < _NAMES_MAX:
            topics[topic] = None
            self._names += 1
        else:
            # Its other topics are not known, so nothing can be said of its consumers.
            self._unknown.add(group)

    def note_plain(self, group: str) -> None:
        """Count a violation when a group that sends transactions sent a message that is not a half."""
        if group in self.groups:
            self._violate(group, PLAIN_SENDS)

    def look_at_consumers(self, subscribed: Callable[[str], Iterable[str]]) -> Iterator[None]:
        """Check consumers that are online, a group at a time; `subscribed` returns the topics of a consumer group."""
        for group, topics in list(self.groups.items()):
            others = (one for one in subscribed(group) if one not in topics and not one.startswith("%"))
            if group not in self._unknown and any(others):
                self._violate(group, CONSUMERS)
            yield

    def shown(self) -> list[Mapping[str, str | int]]:
        """Return the violations for administration: group, kind, how often seen."""
        return [{"group": group, "kind": kind, "seen": seen} for (group, kind), seen in self.violations.items()]

    def _violate(self, group: str, kind: str) -> None:
        key = group, kind
        self.violations[key] = self.violations.get(key, 0) + 1
        self._say(f"group rule {group} {kind}", f"the transactional producer group {group!r} is also used by {kind}")
