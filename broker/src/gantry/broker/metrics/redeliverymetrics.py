"""Metrics of failed messages: families for the table in `families`.

`gantry_dead_letter_messages` is a state and survives a restart; the counters show the rate.  RocketMQ 5's
rocketmq_send_to_dlq_messages_total is gantry_dead_letters_total.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample
from gantry.broker.parts import Parts
from gantry.model import names


def _sent_back(parts: Parts) -> Iterator[Sample]:
    yield from list(parts.redeliveries.retried.items())


def _died(parts: Parts) -> Iterator[Sample]:
    yield from list(parts.redeliveries.dead.items())


def _dropped(parts: Parts) -> Iterator[Sample]:
    for group, count in list(parts.redeliveries.dropped.items()):
        yield (group,), count


def _refused(parts: Parts) -> Iterator[Sample]:
    for reason, count in list(parts.redeliveries.refused.items()):
        yield (reason,), count


def _kept(parts: Parts) -> Iterator[Sample]:
    totals: dict[str, int] = {}
    for topic, queue_id in parts.store.queues():
        if names.is_dlq_topic(topic):
            low, high = parts.store.queue_range(topic, queue_id) or (0, 0)
            totals[topic] = totals.get(topic, 0) + high - low
    for topic, total in totals.items():
        yield (names.group_of(topic) or "",), total


FAMILIES: tuple[Family, ...] = (
    Family(
        COUNTER,
        "gantry_send_backs",
        "Messages that a consumer could not handle and that come again, by the topic that they were sent to.",
        ("consumer_group", "topic"),
        _sent_back,
    ),
    Family(
        COUNTER,
        "gantry_dead_letters",
        "Messages that a group gave up: their attempts were used up, or a consumer said so.",
        ("consumer_group", "topic"),
        _died,
    ),
    Family(
        GAUGE,
        "gantry_dead_letter_messages",
        "Messages in a group's dead-letter topic.",
        ("consumer_group",),
        _kept,
    ),
    Family(
        COUNTER,
        "gantry_send_backs_dropped",
        "Messages sent back by a group whose retryQueueNums is 0; nobody gets them again.",
        ("consumer_group",),
        _dropped,
    ),
    Family(
        COUNTER,
        "gantry_send_backs_refused",
        "Requests to take a message back that were refused, by reason; their consumers keep the message.",
        ("reason",),
        _refused,
    ),
)
