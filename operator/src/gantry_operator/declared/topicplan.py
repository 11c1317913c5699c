"""The next change of a topic on one broker group, from its present state there; pure.

One change at a time; repeating the pass leads to the wanted state, also after interruptions.  Queues are removed in two
steps.  First producers lose them.  Consumers keep reading, and lose them when every group of the topic has read all of
their messages.  So no producer ever writes to a queue that consumers may not read, and every acknowledged message
stays readable.

A group that should not have the topic loses the permission to write and keeps serving the messages that it has.
Settings that the kind does not have (order, other attributes) are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantry.model.topic import PERM_READ_WRITE, PERM_WRITE, TopicConfig
from gantry_operator.api.brokertopic import BrokerTopic


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """The topic on one broker group."""

    config: TopicConfig | None
    unread: int = 0  # number of queues up to the last one that a group may still have to read


class Put(NamedTuple):
    """A change: the wanted configuration, and only the attributes that change; None removes one."""

    config: TopicConfig
    attributes: Mapping[str, str | None]


def change(topic: BrokerTopic, group: str, seen: TopicSeen) -> Put | None:
    """Return the next change on a group; None when nothing is to change now."""
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
    """Return whether consumers still read more queues than wanted, because messages are left there."""
    return topic.is_placed(group) and config.read_queues > topic.read_queues


def gives_up_queues(topic: BrokerTopic, group: str, config: TopicConfig | None) -> bool:
    """Return whether the next change may remove queues from consumers, so that the unread ones have to be known."""
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
