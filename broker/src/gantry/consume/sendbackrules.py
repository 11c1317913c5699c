"""Rules of sending back that hold for one request as for a run of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.append import admit
from gantry.append.redelivery import MoveToDeadLetters, Retry
from gantry.model import names
from gantry.model.topic import TOPIC_SYS_UNIT_SUB, TopicConfig

if TYPE_CHECKING:
    from gantry.leaves.frames import Command
    from gantry.model.subscription import GroupConfig
    from gantry.wire.headers import Header

PROPERTIES_BYTES_MAX = admit.PROPERTIES_BYTES_MAX - admit.DELAY_BYTES_MAX
"""Of a copy, before it is hidden until its delay has passed."""

HEAD_BYTES = 4096
"""Looked at first of a record that may have to be read from the disk: it tells the size."""

_HIDDEN = frozenset({names.HALF_TOPIC, names.OP_HALF_TOPIC, names.SCHEDULE_TOPIC, names.TIMER_TOPIC})


def doubt(topic: str, log_offset: int, origin_topic: str, group: str, claimed: str) -> str:
    """Return why the record of this topic at this log offset was not delivered to the group; empty when it was.

    origin_topic: under which it was consumed first; claimed: the topic that the consumer names, or an empty text.
    """
    if topic in _HIDDEN:
        return f"the record at {log_offset} is not delivered yet and cannot be sent back"
    if names.is_retry_topic(topic) and topic != names.retry_topic(group):
        return f"the message at {log_offset} is a redelivery of another group than {group}"
    if claimed and claimed not in (topic, origin_topic):
        return f"the message at {log_offset} is of topic {topic}, not of {claimed[:60]!r}"
    return ""


def times_max(command: Command, header: Header, group: GroupConfig) -> int:
    """Return how often a message is delivered again: the request's number, else the group's."""
    wanted = header.integer("maxReconsumeTimes", -1)
    return wanted if wanted >= 0 and command.version >= admit.VERSION_OF_MAX_RECONSUME else group.retry_times_max


def target(fate: Retry | MoveToDeadLetters, group: GroupConfig, unit_mode: bool) -> TopicConfig:
    """Return the topic for the copy, as it is created when it does not exist."""
    if isinstance(fate, MoveToDeadLetters):
        return TopicConfig(names.dlq_topic(group.name), read_queues=1, write_queues=1)
    return TopicConfig(
        names.retry_topic(group.name),
        read_queues=group.retry_queues,
        write_queues=group.retry_queues,
        sys_flag=TOPIC_SYS_UNIT_SUB if unit_mode else 0,
    )


def is_open(topic: TopicConfig) -> bool:
    """Return whether copies may be written to this topic."""
    return topic.is_writable and topic.write_queues > 0


def queues_of(fate: Retry | MoveToDeadLetters, group: GroupConfig, topic: TopicConfig) -> int:
    """Return over how many queues the copies are spread."""
    return 1 if isinstance(fate, MoveToDeadLetters) else min(group.retry_queues, topic.write_queues)
