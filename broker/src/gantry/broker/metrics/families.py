"""The table of all metric families, and how those of the broker itself are read.

Nothing is counted here.  The parts count in plain integers, by the batch and not by the message, and a family's `read`
returns these; so the hot path has no extra cost.  Totals of a topic are queue offsets, which the store has anyway.
Families of one theme have their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gantry.append.acks import LATENCY_BOUNDS_S
from gantry.broker.meters.looplag import LAG_BOUNDS_S
from gantry.broker.metrics import (
    delaymetrics,
    diskmetrics,
    exportermetrics,
    filtermetrics,
    groupmetrics,
    nativemetrics,
    ordermetrics,
    popmetrics,
    redeliverymetrics,
    transactionmetrics,
)
from gantry.broker.metrics.family import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Counted,
    CountedSample,
    Family,
    Sample,
    one,
    per_topic,
)
from gantry.broker.parts import Parts
from gantry.transport import descriptors


def _info(parts: Parts) -> Iterator[Sample]:
    config = parts.live.current
    yield (config.cluster, config.name, str(config.role), str(config.store.flush)), 1


def _refused(parts: Parts) -> Iterator[Sample]:
    for code, count in sorted(parts.sending.refused.items()):
        yield (str(code),), count


def _marks(parts: Parts) -> Iterator[Sample]:
    store = parts.store
    for name in ("written", "flushed", "confirmed", "dispatched"):
        yield (name,), getattr(store, name).offset


def _gate(parts: Parts) -> Iterator[Sample]:
    for reason in parts.gate.reasons:
        yield (reason,), 1


def _pulls(parts: Parts) -> Iterator[Sample]:
    counts = parts.pulls.counts
    for result in ("found", "missed", "refused", "woken"):
        yield (result,), getattr(counts, result)


def _clients(parts: Parts) -> Iterator[Sample]:
    producers, consumers = parts.clients.counts()
    yield ("producer",), producers
    yield ("consumer",), consumers


def _requests(parts: Parts) -> Iterator[Sample]:
    for code, count in sorted(parts.router.requests.items()):
        yield ("unsupported" if code < 0 else str(code),), count


def _request_errors(parts: Parts) -> Iterator[Sample]:
    for code, count in sorted(parts.router.errors.items()):
        yield (str(code),), count


def _job_runs(parts: Parts) -> Iterator[Sample]:
    for name, counts in parts.jobs.counts.items():
        yield (name,), counts.runs


def _job_slices_over(parts: Parts) -> Iterator[Sample]:
    for name, counts in parts.jobs.counts.items():
        yield (name,), counts.over


def _job_longest(parts: Parts) -> Iterator[Sample]:
    for name, counts in parts.jobs.counts.items():
        yield (name,), counts.longest_s


def _registered(parts: Parts) -> Iterator[Sample]:
    for address, is_registered in parts.registration.is_registered.items():
        yield (address,), is_registered


def _topic_messages(parts: Parts) -> Iterator[Sample]:
    for topic, total in parts.census.ends.items():
        yield (topic,), total


def _delivered(parts: Parts) -> Iterator[Sample]:
    for (topic, group), (messages, _) in list(parts.pulls.counts.by_group.items()):
        yield (group, topic), messages


def _lag(parts: Parts) -> Iterator[Sample]:
    for standing in parts.census.standings:
        yield (standing.group, standing.topic), standing.behind


def _lag_seconds(parts: Parts) -> Iterator[Sample]:
    for standing in parts.census.standings:
        yield (standing.group, standing.topic), standing.waited_s


def _queue_ends(parts: Parts) -> Iterator[Sample]:
    for topic, queue_id in list(parts.store.queues()):
        ends = parts.store.reader.queue_range(topic, queue_id)
        if ends is not None:
            yield (topic, str(queue_id), "min"), ends[0]
            yield (topic, str(queue_id), "max"), ends[1]


def per_queue(parts: Parts) -> bool:
    """Return whether there is a series for each queue."""
    return parts.live.current.metrics.per_queue


def _ack_wait(parts: Parts) -> Counted:
    return LATENCY_BOUNDS_S, parts.acks.latencies, parts.acks.latency_sum_s


def _loop_lag(parts: Parts) -> Counted:
    return LAG_BOUNDS_S, parts.loop_lag.moments, parts.loop_lag.sum_s


# By family: returns bounds, counts between them, and the sum.
HISTOGRAMS: dict[str, Callable[[Parts], Counted]] = {
    "gantry_ack_wait_seconds": _ack_wait,
    "gantry_loop_lag_seconds": _loop_lag,
    transactionmetrics.FINISH: transactionmetrics.finish_of_all,
    delaymetrics.LATENESS: delaymetrics.lateness,
}
HISTOGRAMS_BY_NAME: dict[str, Callable[[Parts], Iterable[CountedSample]]] = {
    nativemetrics.FINISH: nativemetrics.finish,
}

FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE, "gantry_broker_info", "What this broker is; always 1.", ("cluster", "broker", "role", "flush"), _info
    ),
    Family(GAUGE, "gantry_start_time_seconds", "When it began to serve.", (), one(lambda p: p.serving.since_ms / 1000)),
    Family(COUNTER, "gantry_messages_appended", "Messages into the log.", (), one(lambda p: p.appender.messages)),
    Family(COUNTER, "gantry_log_bytes", "Bytes of records into the log.", (), one(lambda p: p.appender.bytes)),
    Family(
        COUNTER,
        "gantry_messages_acked",
        "Messages whose producer was told SEND_OK.",
        (),
        one(lambda p: p.acks.acked),
    ),
    Family(
        COUNTER,
        "gantry_messages_ack_late",
        "Messages whose producer was told that the outcome is unknown (codes 10, 11, 12).",
        (),
        one(lambda p: p.acks.late),
    ),
    Family(COUNTER, "gantry_messages_refused", "Sends refused, by response code.", ("code",), _refused),
    Family(
        GAUGE,
        "gantry_acks_parked",
        "Messages whose reply waits for the confirmed mark.",
        (),
        one(lambda p: len(p.acks)),
    ),
    Family(GAUGE, "gantry_acks_parked_bytes", "Bytes of those replies.", (), one(lambda p: p.acks.parked_bytes)),
    Family(HISTOGRAM, "gantry_ack_wait_seconds", "How long a message's reply was parked.", (), lambda p: ()),
    Family(GAUGE, "gantry_log_offset", "The four marks on the log.", ("mark",), _marks),
    Family(
        GAUGE,
        "gantry_write_gate_shut",
        "Why the broker takes no messages now; absent when it does.",
        ("reason",),
        _gate,
    ),
    *diskmetrics.FAMILIES,
    *groupmetrics.FAMILIES,
    Family(
        COUNTER,
        "gantry_pulls",
        "Pulls by what they got; woken ones were held before and count in one of the others too.",
        ("result",),
        _pulls,
    ),
    Family(GAUGE, "gantry_pulls_held", "Pulls that wait for messages.", (), one(lambda p: len(p.pulls.held))),
    Family(
        COUNTER, "gantry_messages_delivered", "Messages in pull replies.", (), one(lambda p: p.pulls.counts.messages)
    ),
    Family(COUNTER, "gantry_delivered_bytes", "Bytes of those messages.", (), one(lambda p: p.pulls.counts.bytes)),
    *redeliverymetrics.FAMILIES,
    *transactionmetrics.FAMILIES,
    *delaymetrics.FAMILIES,
    *filtermetrics.FAMILIES,
    *popmetrics.FAMILIES,
    Family(GAUGE, "gantry_connections", "Open remoting connections.", (), one(lambda p: len(p.server.connections))),
    Family(
        COUNTER,
        "gantry_connections_refused",
        "Connections closed at once because there were too many, or descriptors of the store would be taken.",
        (),
        one(lambda p: p.server.refused),
    ),
    Family(
        GAUGE,
        "gantry_descriptors_reserved",
        "Descriptors of process_max_fds that remoting connections leave to files.",
        (),
        one(lambda p: descriptors.reserve()),
    ),
    Family(GAUGE, "gantry_clients", "Registrations from heartbeats.", ("kind",), _clients),
    Family(GAUGE, "gantry_topics", "Topics, system topics too.", (), one(lambda p: len(p.topics.names()))),
    Family(GAUGE, "gantry_consumer_groups", "Consumer groups.", (), one(lambda p: sum(1 for _ in p.groups.all()))),
    *ordermetrics.FAMILIES,
    Family(COUNTER, "gantry_requests", "Requests by code.", ("code",), _requests),
    Family(
        COUNTER, "gantry_request_errors", "Requests whose handler failed; each is a bug.", ("code",), _request_errors
    ),
    Family(COUNTER, "gantry_job_runs", "Runs of periodic jobs.", ("job",), _job_runs),
    Family(COUNTER, "gantry_job_slices_over", "Slices of jobs that took more than 1 ms.", ("job",), _job_slices_over),
    Family(GAUGE, "gantry_job_longest_slice_seconds", "The longest slice so far.", ("job",), _job_longest),
    Family(
        HISTOGRAM,
        "gantry_loop_lag_seconds",
        "How long anyone who comes waits for the event loop, over moments; up to 1 ms of it is rounding.",
        (),
        lambda p: (),
    ),
    Family(
        GAUGE, "gantry_registered", "Whether a name server took the last registration.", ("name_server",), _registered
    ),
    Family(
        COUNTER,
        "gantry_offset_commits_back",
        "Consumer offsets that were set back.",
        (),
        one(lambda p: p.offsets.went_back),
    ),
    Family(
        COUNTER,
        "gantry_offset_commits_beyond",
        "Consumer offsets that were refused because they lie beyond the end of their queue.",
        (),
        one(lambda p: p.pulls.commits.beyond),
    ),
    Family(
        COUNTER,
        "gantry_topic_messages",
        "Messages into a topic since it was made: the sum of its queues' ends.",
        ("topic",),
        _topic_messages,
        per_topic,
    ),
    Family(
        COUNTER,
        "gantry_group_messages_delivered",
        "Messages in pull replies, by consumer group.",
        ("consumer_group", "topic"),
        _delivered,
        per_topic,
    ),
    Family(
        GAUGE,
        "gantry_group_lag_messages",
        "Messages behind the committed offset, by consumer group; a queue that the group has not begun counts whole.",
        ("consumer_group", "topic"),
        _lag,
        per_topic,
    ),
    Family(
        GAUGE,
        "gantry_group_lag_seconds",
        "How long the first message waits that a group has not finished, in the queue where most wait.",
        ("consumer_group", "topic"),
        _lag_seconds,
        per_topic,
    ),
    Family(
        GAUGE,
        "gantry_queue_offset",
        "First and next offset of a queue; only with metrics.per_queue.",
        ("topic", "queue", "end"),
        _queue_ends,
        per_queue,
    ),
    *nativemetrics.FAMILIES,
    *exportermetrics.FAMILIES,
)
