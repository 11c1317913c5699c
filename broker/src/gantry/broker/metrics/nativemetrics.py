"""What /metrics says under the names of RocketMQ 5's own metrics, with its labels: rows for the table of `metrics`.

A dashboard made for a RocketMQ 5 broker that exports to Prometheus finds its series here.  The library behind that
exporter adds units to names (`_milliseconds`), upstream's documents leave them out: both spellings are there.

What differs is written into the help texts.  `message_type` is the topic's, from its attribute, because messages are
counted by the run; messages count when consumers can have them: a delayed one when it is delivered, a half when it
is committed.  Not there: rocketmq_message_size and rocketmq_rpc_latency would be counted with every message,
rocketmq_processor_watermark is about thread pools, and what a consumer has taken and not finished only it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gantry.broker.meters.census import Standing
from gantry.broker.metrics import transactionmetrics
from gantry.broker.metrics.diskmetrics import oldest_s
from gantry.broker.metrics.family import COUNTER, GAUGE, HISTOGRAM, CountedSample, Family, Read, Sample, per_topic
from gantry.broker.settings.config import Role
from gantry.model import names

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

FINISH = "rocketmq_finish_message_latency"
MESSAGE_TYPE = "message.type"  # a topic's attribute
_NODE = ("cluster", "node_type", "node_id")
_GROUP = (*_NODE, "consumer_group", "topic", "is_retry", "is_system")
_STORAGE = (*_NODE, "storage_type", "storage_medium")



def is_shown(parts: Parts) -> bool:
    """Whether RocketMQ's names are wanted."""
    return parts.live.current.metrics.rocketmq


def leads(parts: Parts) -> bool:
    """The same on a master only: what all members of a group have counts once."""
    return is_shown(parts) and parts.live.current.role is not Role.SLAVE


def _each(parts: Parts) -> bool:
    """The same where there are series by topic and group: of waiting times there is no sum."""
    return leads(parts) and per_topic(parts)


def _node(parts: Parts) -> tuple[str, ...]:
    config = parts.live.current
    return config.cluster, "broker", config.name


def _of_node(read: Read, *behind: str) -> Read:
    """The samples with the node's labels before theirs, and `behind` after them."""

    def samples(parts: Parts) -> Iterator[Sample]:
        node = _node(parts)
        for labels, value in read(parts):
            yield (*node, *labels, *behind), value

    return samples


def _one(read: Callable[[Parts], float]) -> Read:
    return _of_node(lambda parts: [((), read(parts))])


def _storage(read: Callable[[Parts], float]) -> Read:
    return _of_node(lambda parts: [((), read(parts))], "local", "disk")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _is_system(topic: str, group: str = "") -> str:
    return _flag(names.is_system_topic(topic) or names.is_system_group(group))


def _type(parts: Parts, topic: str) -> str:
    config = parts.topics.get(topic)
    return "normal" if config is None else config.attributes.get(MESSAGE_TYPE, "normal").lower()


def _came(parts: Parts, totals: Iterable[tuple[str, int]]) -> Iterator[Sample]:
    for topic, total in totals:
        if parts.topics.get(topic) is not None and names.group_of(topic) is None:
            yield (topic, _type(parts, topic), _is_system(topic)), total


def _messages_in(parts: Parts) -> Iterator[Sample]:
    return _came(parts, parts.census.ends.items())


def _bytes_in(parts: Parts) -> Iterator[Sample]:
    return _came(parts, list(parts.store.bytes_came().items()))


def _went(parts: Parts, number: int) -> Iterator[Sample]:
    for (topic, group), counts in list(parts.pulls.counts.by_group.items()):
        if parts.topics.get(topic) is not None and parts.groups.get(group) is not None:
            retry = _flag(names.is_retry_topic(topic))
            yield (group, topic, retry, _is_system(topic, group)), counts[number]


def _messages_out(parts: Parts) -> Iterator[Sample]:
    return _went(parts, 0)


def _bytes_out(parts: Parts) -> Iterator[Sample]:
    return _went(parts, 1)


def _standing(value: Callable[[Standing], float]) -> Read:
    def samples(parts: Parts) -> Iterator[Sample]:
        for one in parts.census.standings:
            if not one.is_dead:
                labels = (one.group, one.topic, _flag(one.is_retry), _is_system(one.topic, one.group))
                yield labels, value(one)

    return _of_node(samples)


def _died(parts: Parts) -> Iterator[Sample]:
    for (group, topic), count in list(parts.redeliveries.dead.items()):
        yield (topic, group, _is_system(topic, group)), count


def _producers(parts: Parts) -> Iterator[Sample]:
    for client, count in parts.census.producers.items():
        yield (client.language, client.version, "remoting"), count


def _consumers(parts: Parts) -> Iterator[Sample]:
    for one, count in parts.census.consumers.items():
        is_system = _flag(names.is_system_group(one.group))
        yield (one.group, one.language, one.version, one.mode, "remoting", is_system), count


def finish(parts: Parts) -> Iterator[CountedSample]:
    """From birth to commit, by topic."""
    node = _node(parts)
    for topic, counted in transactionmetrics.finish(parts):
        yield (*node, topic), counted


def _gauges(
    name: str, units: tuple[str, ...], text: str, labels: tuple[str, ...], read: Read, is_on: Callable[[Parts], bool]
) -> tuple[Family, ...]:
    """One figure by each of its spellings."""
    spelled = [name, *(f"{name}_{unit}" for unit in units)]
    return tuple(Family(GAUGE, each, text, labels, read, is_on) for each in spelled)


FAMILIES: tuple[Family, ...] = (
    Family(
        COUNTER,
        "rocketmq_messages_in",
        "RocketMQ 5: messages into a topic, since it was made; only on a master.",
        (*_NODE, "topic", "message_type", "is_system"),
        _of_node(_messages_in),
        leads,
    ),
    Family(
        COUNTER,
        "rocketmq_throughput_in",
        "RocketMQ 5: bytes of their records, since the start; only on a master.",
        (*_NODE, "topic", "message_type", "is_system"),
        _of_node(_bytes_in),
        leads,
    ),
    Family(
        COUNTER, "rocketmq_messages_out", "RocketMQ 5: messages to a group.", _GROUP, _of_node(_messages_out), is_shown
    ),
    Family(COUNTER, "rocketmq_throughput_out", "RocketMQ 5: bytes of them.", _GROUP, _of_node(_bytes_out), is_shown),
    Family(
        GAUGE,
        "rocketmq_consumer_lag_messages",
        "RocketMQ 5: messages behind the committed offset; only on a master.",
        _GROUP,
        _standing(lambda one: one.behind),
        leads,
    ),
    *_gauges(
        "rocketmq_consumer_lag_latency",
        ("milliseconds",),
        "RocketMQ 5: how many ms the first of them waits, in the queue where most wait; only on a master.",
        _GROUP,
        _standing(lambda one: round(one.waited_s * 1000)),
        _each,
    ),
    Family(
        COUNTER,
        "rocketmq_send_to_dlq_messages",
        "RocketMQ 5: messages that a group gave up.",
        (*_NODE, "topic", "consumer_group", "is_system"),
        _of_node(_died),
        is_shown,
    ),
    Family(
        GAUGE,
        "rocketmq_producer_connections",
        "RocketMQ 5: producers registered; the version is the number that clients send.",
        (*_NODE, "language", "version", "protocol_type"),
        _of_node(_producers),
        is_shown,
    ),
    Family(
        GAUGE,
        "rocketmq_consumer_connections",
        "RocketMQ 5: consumers registered; the version is the number that clients send.",
        (*_NODE, "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        _of_node(_consumers),
        is_shown,
    ),
    Family(
        GAUGE,
        "rocketmq_broker_permission",
        "RocketMQ 5: 2 write, 4 read, 6 both.",
        _NODE,
        _one(lambda p: p.live.current.permission),
        is_shown,
    ),
    Family(
        GAUGE, "rocketmq_topic_number", "RocketMQ 5: topics.", _NODE, _one(lambda p: len(p.topics.names())), is_shown
    ),
    Family(
        GAUGE,
        "rocketmq_consumer_group_number",
        "RocketMQ 5: consumer groups.",
        _NODE,
        _one(lambda p: sum(1 for _ in p.groups.all())),
        is_shown,
    ),
    *_gauges(
        "rocketmq_storage_size",
        ("bytes",),
        "RocketMQ 5: bytes in use on the store's disk.",
        _STORAGE,
        _storage(lambda p: p.census.stats.disk_total_bytes - p.census.stats.disk_free_bytes),
        is_shown,
    ),
    *_gauges(
        "rocketmq_storage_flush_behind_bytes",
        (),
        "RocketMQ 5: bytes that are written and not yet on the disk.",
        _STORAGE,
        _storage(lambda p: p.store.written.offset - p.store.flushed.offset),
        is_shown,
    ),
    *_gauges(
        "rocketmq_storage_dispatch_behind_bytes",
        (),
        "RocketMQ 5: bytes that are confirmed and not yet in queues.",
        _STORAGE,
        _storage(lambda p: p.store.confirmed.offset - p.store.dispatched.offset),
        is_shown,
    ),
    *_gauges(
        "rocketmq_storage_message_reserve_time",
        ("milliseconds",),
        "RocketMQ 5: age of the oldest message in ms.",
        _STORAGE,
        _storage(lambda p: round(oldest_s(p) * 1000)),
        is_shown,
    ),
    Family(
        GAUGE,
        "rocketmq_half_messages",
        "RocketMQ 5: open transactions.",
        (*_NODE, "topic"),
        _of_node(transactionmetrics.open_by_topic),
        leads,
    ),
    Family(
        COUNTER,
        "rocketmq_commit_messages",
        "RocketMQ 5: commits.",
        (*_NODE, "topic"),
        _of_node(transactionmetrics.committed),
        is_shown,
    ),
    Family(
        COUNTER,
        "rocketmq_rollback_messages",
        "RocketMQ 5: rollbacks.",
        (*_NODE, "topic"),
        _of_node(transactionmetrics.rolled_back),
        is_shown,
    ),
    Family(
        HISTOGRAM,
        FINISH,
        "RocketMQ 5: from a half's birth to its commit in seconds.",
        (*_NODE, "topic"),
        lambda p: (),
        is_shown,
    ),
)
