"""What is deleted with a topic, in the broker's parts."""

from __future__ import annotations

from gantry.broker.parts import Parts
from gantry.consume.pull import readers_of
from gantry.model.topic import TopicConfig
from gantry.pop.parts import retry_topics


def delete_content(topic: TopicConfig, parts: Parts) -> None:
    """Delete everything that was kept for a topic; its readers begin again if it is created again.

    What was to be delivered again of an HTTP queue goes first, so that no crash leaves it to a new queue of the name.
    """
    for name in retry_topics(topic):
        parts.topics.delete(name)
    store, name = parts.store, topic.name
    readers = readers_of(name, parts.clients, parts.pulls.counts.by_group)
    store.delete_queues(name)
    parts.offsets.begin_again(name, store.generations.of(name), readers, topic.read_queues)
    parts.pops.topic_deleted(name)
    parts.modes.forget_topic(name)
    parts.pulls.held.release_topic(name)
