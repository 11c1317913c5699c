"""What to change about a topic on one broker group, from how it is there; pure.

One change at a time, each of which may be the last one for a while: anyone who repeats looking, planning and carrying
out arrives.  Queues are given up in two steps.  First producers lose them; consumers keep reading, and lose them when
nothing is left there that a group of the topic has not read.  At no time does anybody write to a queue that nobody may
read, and nothing that was acknowledged gets out of reach.

A group that is not meant to have the topic loses the permission to write and keeps serving what it has.  What this
kind of object does not speak of (order, other attributes) stays as somebody made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantry.model.topic import PERM_READ_WRITE, PERM_WRITE, TopicConfig
from gantry_operator.api.brokertopic import BrokerTopic


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """How a broker group has it."""

    config: TopicConfig | None
    unread: int = 0  # how many of its queues somebody may still have to read: the last of them, and all before it


class Put(NamedTuple):
    """Have the topic so; attributes only as far as they change, None taking one away."""

    config: TopicConfig
    attributes: Mapping[str, str | None]


def change(topic: BrokerTopic, group: str, seen: TopicSeen) -> Put | None:
    """The next change on a group; None: there is nothing to change now."""
    if topic.about.is_observed:
        return None
    if not topic.is_placed(group):
        return _left(seen.config)
    config = seen.config or TopicConfig(topic.about.name, topic.read_queues, topic.write_queues)
    attributes = {key: text for key, text in topic.attributes.items() if config.attributes.get(key) != text}
    wanted = replace(
        config,
        write_queues=topic.write_queues,
        read_queues=_read_queues(topic, seen),
        perm=topic.perm | (config.perm & ~PERM_READ_WRITE),
    )
    return Put(wanted, attributes) if attributes or wanted != seen.config else None


def is_draining(topic: BrokerTopic, group: str, config: TopicConfig) -> bool:
    """Whether more queues than wanted are read there, because they are not empty."""
    return topic.is_placed(group) and config.read_queues > topic.read_queues


def gives_up_queues(topic: BrokerTopic, group: str, config: TopicConfig | None) -> bool:
    """Whether the next change may take queues from readers, so that it matters which are unread."""
    return config is not None and is_draining(topic, group, config) and config.write_queues <= topic.write_queues


def _read_queues(topic: BrokerTopic, seen: TopicSeen) -> int:
    if seen.config is None:
        return topic.read_queues
    if seen.config.write_queues > topic.write_queues:
        return max(topic.read_queues, seen.config.read_queues)
    return max(topic.read_queues, min(seen.config.read_queues, seen.unread))


def _left(config: TopicConfig | None) -> Put | None:
    if config is None or not config.is_writable:
        return None
    return Put(replace(config, perm=config.perm & ~PERM_WRITE), {})
