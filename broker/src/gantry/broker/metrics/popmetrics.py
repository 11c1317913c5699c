"""Metrics of POP: families for the table in `families`.

`gantry_pop_acks{outcome="stale"}` that grows means consumers that work longer than their messages are invisible: what
they acknowledge was delivered again.  RocketMQ's names for revived messages and for open ones exist as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample, one, per_topic
from gantry.pop import handle

if TYPE_CHECKING:
    from gantry.broker.parts import Parts


def _pops(parts: Parts) -> Iterator[Sample]:
    counts = parts.pops.service.counts
    yield ("found",), counts.pops
    yield ("empty",), counts.empty
    yield ("refused",), counts.refused


def _held(parts: Parts) -> Iterator[Sample]:
    for kind, count in parts.pops.polling.held.by_kind().items():
        yield (kind,), count


def _held_ended(parts: Parts) -> Iterator[Sample]:
    counts = parts.pops.polling.held.counts
    for result in ("answered", "expired", "gone", "full"):
        yield (result,), getattr(counts, result)


def _acks(parts: Parts) -> Iterator[Sample]:
    counts = parts.pops.service.counts
    for outcome in ("acked", "changed", "stale"):
        yield (outcome,), getattr(counts, outcome)


def _ended(parts: Parts) -> Iterator[Sample]:
    counts = parts.pops.service.counts
    yield ("retry",), counts.revived
    yield ("dead letter",), counts.dead
    yield ("renewed",), parts.pops.owners.owners.renewed
    yield ("lost",), counts.lost
    yield ("life over",), counts.expired
    yield ("deleted",), counts.discarded


def popped(parts: Parts) -> Iterator[Sample]:
    """Yield how many messages each group popped, retries included."""
    for (topic, group), (messages, _) in list(parts.pops.service.counts.by_group.items()):
        yield (group, topic), messages


def open_messages(parts: Parts) -> Iterator[Sample]:
    """Yield the messages that each group popped and has not acknowledged, by the topic of their queue."""
    totals: dict[tuple[str, str], int] = {}
    for (group, topic, _), count in list(parts.pops.service.book.queues()):
        totals[group, topic] = totals.get((group, topic), 0) + count
    yield from totals.items()


def _open_by_topic(parts: Parts) -> Iterator[Sample]:
    totals: dict[tuple[str, str], float] = {}
    for (group, topic), count in open_messages(parts):
        normal, _ = handle.normal_topic(topic, group)
        totals[group, normal] = totals.get((group, normal), 0) + count
    yield from totals.items()


def revive_lag(parts: Parts) -> Iterator[Sample]:
    """Yield by revive queue how many records of ended leases are not handled."""
    topic = parts.pops.service.rules.revive_topic
    for queue_id, following in parts.pops.reviver.following.items():
        yield (str(queue_id),), max(0, (parts.store.queue_range(topic, queue_id) or (0, 0))[1] - following)


def revive_late_ms(parts: Parts) -> Iterator[Sample]:
    """Yield by revive queue how long its first record that is not handled has been there, in ms; 0 without one."""
    for queue_id in list(parts.pops.reviver.following):
        stored_ms = parts.pops.reviver.waiting_since(queue_id)
        yield (str(queue_id),), 0 if stored_ms is None else max(0, parts.clock.now_ms() - stored_ms)


def _is_known(parts: Parts, topic: str, group: str) -> bool:
    return parts.topics.get(topic) is not None and parts.groups.get(group) is not None


def revive_in(parts: Parts) -> Iterator[Sample]:
    """Yield how many records about leases were stored, by group, topic of the queue and kind."""
    for (topic, group, kind), count in list(parts.pops.service.counts.stored.items()):
        if _is_known(parts, topic, group):
            yield (group, topic, kind, "PUT_OK"), count


def revive_out(parts: Parts) -> Iterator[Sample]:
    """Yield how many records of the revive queues were handled, by group, topic, queue and kind."""
    for (topic, group, kind, queue_id), count in list(parts.pops.service.counts.handled.items()):
        if _is_known(parts, topic, group):
            yield (group, topic, str(queue_id), kind), count


def revive_retries(parts: Parts) -> Iterator[Sample]:
    """Yield how many messages whose lease ended were put into retry topics, by group and topic of the queue."""
    for (topic, group), count in list(parts.pops.service.counts.retried.items()):
        if _is_known(parts, topic, group):
            yield (group, topic, "PUT_OK"), count


FAMILIES: tuple[Family, ...] = (
    Family(
        COUNTER, "gantry_pops", "Answers to pops: with messages (found), without (empty), refused.", ("result",), _pops
    ),
    Family(GAUGE, "gantry_pop_held", "Requests that wait for messages: pops, notifications.", ("kind",), _held),
    Family(
        COUNTER,
        "gantry_pop_held_ended",
        "What became of them: answered, their time over, client gone, or not held because too many waited (full).",
        ("result",),
        _held_ended,
    ),
    Family(
        GAUGE,
        "gantry_pop_leases",
        "Leases with messages that are not acknowledged.",
        (),
        one(lambda p: p.pops.service.book.leases),
    ),
    Family(
        GAUGE,
        "gantry_pop_open_messages",
        "Popped messages that are not acknowledged; see pop.leases_total_max.",
        (),
        one(lambda p: p.pops.service.book.open),
    ),
    Family(
        GAUGE,
        "gantry_pop_open_messages_limit",
        "How many there may be (pop.leases_total_max).",
        (),
        one(lambda p: p.pops.service.rules.leases_total_max),
    ),
    Family(
        COUNTER,
        "gantry_pop_acks",
        "Popped messages acknowledged, given another time (changed), or named by a handle that was not valid any more.",
        ("outcome",),
        _acks,
    ),
    Family(
        COUNTER,
        "gantry_pop_ended",
        "Popped messages whose lease ended: into the retry topic, dead letters, record or topic gone; leases renewed.",
        ("outcome",),
        _ended,
    ),
    Family(
        GAUGE,
        "gantry_pop_owners",
        "Clients whose leases the broker renews.",
        (),
        one(lambda p: len(p.pops.owners.owners)),
    ),
    Family(
        COUNTER,
        "gantry_group_messages_popped",
        "Messages in answers to pops, by consumer group; retries count for the topic that they came from.",
        ("consumer_group", "topic"),
        popped,
        per_topic,
    ),
    Family(
        GAUGE,
        "gantry_group_open_messages",
        "Messages that a consumer group popped and has not acknowledged.",
        ("consumer_group", "topic"),
        _open_by_topic,
        per_topic,
    ),
)
