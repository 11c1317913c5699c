"""Metrics with the names and labels of RocketMQ 5's own: families for the table in `families`.

A dashboard for a RocketMQ 5 broker that exports to Prometheus finds its series here.  The library of that exporter adds
units to names (`_milliseconds`), RocketMQ's documents omit them: both spellings exist here.

Differences are named in the help texts.  `message_type` is the attribute of the topic, because messages are counted in
batches.  A message counts when consumers can receive it: a delayed one at its delivery, a half at its commit.  Missing
are rocketmq_message_size and rocketmq_rpc_latency, which would cost time for every message,
rocketmq_processor_watermark, which is about thread pools, and messages in flight at a consumer, which only it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gantry.broker.meters.census import GroupBacklog
from gantry.broker.metrics import popmetrics, transactionmetrics
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
    """Return whether metrics with RocketMQ's names are configured."""
    return parts.live.current.metrics.rocketmq


def leads(parts: Parts) -> bool:
    """Return whether they are shown for what all members of a group have in common: on the master only."""
    return is_shown(parts) and parts.live.current.role is not Role.SLAVE


def _each(parts: Parts) -> bool:
    """Return whether series by topic and group are shown; waiting times have no sum."""
    return leads(parts) and per_topic(parts)


def _node(parts: Parts) -> tuple[str, ...]:
    config = parts.live.current
    return config.cluster, "broker", config.name


def _of_node(read: Read, *behind: str) -> Read:
    """Return a `read` whose samples have the node's labels first, and `behind` last."""

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
    totals = {key: counts[number] for key, counts in parts.pulls.counts.by_group.items()}
    for key, counts in parts.pops.service.counts.by_group.items():
        totals[key] = totals.get(key, 0) + counts[number]
    for (topic, group), total in totals.items():
        if parts.topics.get(topic) is not None and parts.groups.get(group) is not None:
            retry = _flag(names.is_retry_topic(topic))
            yield (group, topic, retry, _is_system(topic, group)), total


def _messages_out(parts: Parts) -> Iterator[Sample]:
    return _went(parts, 0)


def _bytes_out(parts: Parts) -> Iterator[Sample]:
    return _went(parts, 1)


def _standing(value: Callable[[GroupBacklog], float]) -> Read:
    def samples(parts: Parts) -> Iterator[Sample]:
        for one in parts.census.standings:
            if not one.is_dead:
                labels = (one.group, one.topic, _flag(one.is_retry), _is_system(one.topic, one.group))
                yield labels, value(one)

    return _of_node(samples)


def _inflight(parts: Parts) -> Iterator[Sample]:
    for (group, topic), count in popmetrics.open_messages(parts):
        yield (group, topic, _flag(names.is_retry_topic(topic)), _is_system(topic, group)), count


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
    """Yield the histogram of seconds between a half's birth and its commit, by topic."""
    node = _node(parts)
    for topic, counted in transactionmetrics.finish(parts):
        yield (*node, topic), counted


def _gauges(
    name: str, units: tuple[str, ...], text: str, labels: tuple[str, ...], read: Read, is_on: Callable[[Parts], bool]
) -> tuple[Family, ...]:
    """Return one gauge under each of its spellings."""
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
        GAUGE,
        "rocketmq_consumer_inflight_messages",
        "RocketMQ 5: messages that a group popped and has not acknowledged; those that were pulled are not known here.",
        _GROUP,
        _of_node(_inflight),
        leads,
    ),
    *_gauges(
        "rocketmq_pop_revive_lag",
        ("milliseconds",),
        "RocketMQ 5: records of ended leases that are not handled, by revive queue; a number, as RocketMQ's.",
        (*_NODE, "queue_id"),
        _of_node(popmetrics.revive_lag),
        leads,
    ),
    *_gauges(
        "rocketmq_pop_revive_latency",
        ("milliseconds",),
        "RocketMQ 5: how many ms the first of them has been there, by revive queue; 0 when there is none.",
        (*_NODE, "queue_id"),
        _of_node(popmetrics.revive_late_ms),
        leads,
    ),
    Family(
        COUNTER,
        "rocketmq_pop_revive_in_message",
        "RocketMQ 5: leases (CK) and acknowledgements (ACK) that were stored.",
        (*_NODE, "consumer_group", "topic", "revive_message_type", "put_status"),
        _of_node(popmetrics.revive_in),
        is_shown,
    ),
    Family(
        COUNTER,
        "rocketmq_pop_revive_out_message",
        "RocketMQ 5: leases (CK) and acknowledgements (ACK) that were handled in the revive queues.",
        (*_NODE, "consumer_group", "topic", "queue_id", "revive_message_type"),
        _of_node(popmetrics.revive_out),
        is_shown,
    ),
    Family(
        COUNTER,
        "rocketmq_pop_revive_retry_messages",
        "RocketMQ 5: messages whose lease ended and that were put into a retry topic.",
        (*_NODE, "consumer_group", "topic", "put_status"),
        _of_node(popmetrics.revive_retries),
        is_shown,
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
