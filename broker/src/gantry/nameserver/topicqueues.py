"""The queues of each topic on each group of brokers, and the static mappings beside them.

Half a million topics are gone over in slices: `all_topics` copies their names, and what is done with them looks again
at what is there then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from gantry.model.route import QueueData
from gantry.model.topic import PERM_WRITE, TopicConfig
from gantry.nameserver.mappings import StaticMappings

_COPIED_AT_ONCE = 20_000  # up to 20 ns each, most of it misses of the cache
_CHANGED_AT_ONCE = 500  # up to 4 us each, where the cache misses
_NOTHING: Mapping[str, QueueData] = {}


def queues_of(broker_name: str, config: TopicConfig) -> QueueData:
    """Return a topic's queues on a broker as routes say them."""
    return QueueData(broker_name, config.read_queues, config.write_queues, config.perm, config.sys_flag)


class TopicQueues:
    """By topic and name of the group."""

    def __init__(self) -> None:
        self.mappings = StaticMappings()
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._changes = 0  # how often a topic came or went

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic by the name of the group; nothing for an unknown topic."""
        return self._queues.get(topic, _NOTHING)

    def has_room(self, topics: Mapping[str, object], topics_max: int) -> bool:
        """Return whether these topics can be added."""
        return len(self) + len(topics) <= topics_max or len(self._queues.keys() | topics) <= topics_max

    def put(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Set a topic's queues on these groups."""
        self._changes += topic not in self._queues
        self._queues.setdefault(topic, {}).update({data.broker_name: data for data in queues})

    def take(
        self,
        name: str,
        topics: Mapping[str, TopicConfig],
        made: Mapping[str, QueueData],
        is_changed: bool,
        is_read_only: bool,
    ) -> None:
        """Set the queues of a group's topics; those that it has already only if its registration has changed.

        made: what is made of topics already.
        """
        # Some thousand topics are taken in one piece: what each of them costs counts.
        for topic, config in topics.items():
            queues = self._queues.get(topic)
            if queues is None:
                queues = self._queues[topic] = {}
                self._changes += 1
            elif not is_changed and name in queues:
                continue
            data = made.get(topic) or queues_of(name, config)
            queues[name] = replace(data, perm=data.perm & ~PERM_WRITE) if is_read_only else data

    def topics_of(self, name: str) -> list[str]:
        """Return the topics that a group has."""
        return [topic for topic, queues in self._queues.items() if name in queues]

    def drop(self, topic: str, name: str) -> None:
        """Remove a topic's queues on a group that has it."""
        queues = self._queues[topic]
        del queues[name]
        self.mappings.drop(topic, name)
        if not queues:
            del self._queues[topic]
            self._changes += 1

    def all_topics(self) -> Generator[None, None, list[str]]:
        """Return all topics in any order, copied in slices; in one piece when topics came or went in between."""
        found, changes, names = list[str](), self._changes, iter(self._queues)
        while some := list(islice(names, _COPIED_AT_ONCE)):
            found += some
            yield
            if changes != self._changes:
                return list(self._queues)
        return found

    def on_groups(self, topics: Sequence[str], groups: set[str]) -> list[str]:
        """Return those of the topics that have queues on one of these groups."""
        return [topic for topic in topics if not groups.isdisjoint(self.of(topic))]

    def changing_perm(
        self, name: str, change: Callable[[int], int], is_over: Callable[[], bool]
    ) -> Generator[None, None, int]:
        """Change the permissions of a group's topics, in slices.  Return the number of topics.

        is_over: asked after each slice whether the others stay as they are.
        """
        count = 0
        for number, topic in enumerate((yield from self.all_topics()), 1):
            data = self.of(topic).get(name)
            if data is not None:
                self._queues[topic][name] = replace(data, perm=change(data.perm))
                count += 1
            if number % _CHANGED_AT_ONCE == 0:
                yield
                if is_over():
                    break
        return count
