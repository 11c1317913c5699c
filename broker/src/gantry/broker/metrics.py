"""What /metrics says: one table of families, read when somebody asks.

Nothing is counted here.  The parts count what they do in plain integers, by the run and not by the message, and
a family's `read` looks at them; so the hot path pays nothing for this file.  Totals per topic are queue
offsets, which the store keeps anyway.

Rendering is prometheus_client's.  It goes family by family, and within a family by chunks, with a turn of the
loop between, so that a scrape of many series does not hold up a send; the text is kept for a second, so that
many scrapers cost as much as one.  Families with a series per topic or per group stop at `series_max`, and are off or
sums over all of them without `per_topic`; those with one per queue are off unless configured.

`broker/docs/metrics.md` is generated from FAMILIES by `document`; a test compares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry.append.acks import LATENCY_BOUNDS_S
from gantry.broker import (
    delaymetrics,
    diskmetrics,
    filtermetrics,
    groupmetrics,
    ordermetrics,
    redeliverymetrics,
    transactionmetrics,
)
from gantry.broker.family import COUNTER, GAUGE, HISTOGRAM, Counted, Family, Sample, one, summed, summed_histogram
from gantry.broker.looplag import LAG_BOUNDS_S
from gantry.broker.parts import Parts

_CHUNK_SERIES = 200
_CACHE_S = 1.0


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
    totals: dict[str, int] = {}
    for topic, queue_id in parts.store.queues():
        totals[topic] = totals.get(topic, 0) + parts.store.next_queue_offset(topic, queue_id)
    for topic, total in totals.items():
        yield (topic,), total


def _delivered(parts: Parts) -> Iterator[Sample]:
    for (topic, group), (messages, _) in list(parts.pulls.counts.by_group.items()):
        yield (group, topic), messages


def _lag(parts: Parts) -> Iterator[Sample]:
    for group, topic, queues in list(parts.offsets.all()):
        behind = 0
        for queue_id, offset in queues.items():
            ends = parts.store.reader.queue_range(topic, queue_id)
            if ends is not None:
                behind += max(0, ends[1] - offset)
        yield (group, topic), behind


def _queue_ends(parts: Parts) -> Iterator[Sample]:
    for topic, queue_id in list(parts.store.queues()):
        ends = parts.store.reader.queue_range(topic, queue_id)
        if ends is not None:
            yield (topic, str(queue_id), "min"), ends[0]
            yield (topic, str(queue_id), "max"), ends[1]


def _per_topic(parts: Parts) -> bool:
    return parts.live.current.metrics.per_topic


def _per_queue(parts: Parts) -> bool:
    return parts.live.current.metrics.per_queue


def _ack_wait(parts: Parts) -> Counted:
    return LATENCY_BOUNDS_S, parts.acks.latencies, parts.acks.latency_sum_s


def _loop_lag(parts: Parts) -> Counted:
    return LAG_BOUNDS_S, parts.loop_lag.moments, parts.loop_lag.sum_s


# By family: bounds, counts between them, and the sum.
_HISTOGRAMS: dict[str, Callable[[Parts], Counted]] = {
    "gantry_ack_wait_seconds": _ack_wait,
    "gantry_loop_lag_seconds": _loop_lag,
    transactionmetrics.FINISH: transactionmetrics.finish_of_all,
    delaymetrics.LATENESS: delaymetrics.lateness,
}
_HISTOGRAMS_BY_TOPIC: dict[str, Callable[[Parts], Iterable[tuple[str, Counted]]]] = {
    transactionmetrics.FINISH_BY_TOPIC: transactionmetrics.finish,
}

FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE, "gantry_broker_info", "What this broker is; always 1.", ("cluster", "broker", "role", "flush"), _info
    ),
    Family(GAUGE, "gantry_start_time_seconds", "When it began to serve.", (), one(lambda p: p.started_ms / 1000)),
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
    Family(GAUGE, "gantry_connections", "Open remoting connections.", (), one(lambda p: len(p.server.connections))),
    Family(
        COUNTER,
        "gantry_connections_refused",
        "Connections closed at once because there were too many.",
        (),
        one(lambda p: p.server.refused),
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
        "How long whoever comes waits for the event loop, over moments; up to 1 ms of it is rounding.",
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
        "gantry_topic_messages",
        "Messages into a topic since it was made: the sum of its queues' ends.",
        ("topic",),
        _topic_messages,
        _per_topic,
    ),
    Family(
        COUNTER,
        "gantry_group_messages_delivered",
        "Messages in pull replies, by consumer group.",
        ("consumer_group", "topic"),
        _delivered,
        _per_topic,
    ),
    Family(
        GAUGE,
        "gantry_group_lag_messages",
        "Messages behind the committed offset, by consumer group.",
        ("consumer_group", "topic"),
        _lag,
        _per_topic,
    ),
    Family(
        GAUGE,
        "gantry_queue_offset",
        "First and next offset of a queue; only with metrics.per_queue.",
        ("topic", "queue", "end"),
        _queue_ends,
        _per_queue,
    ),
)


class Metrics:
    """Renders the table for one broker; the text is kept for a second."""

    def __init__(self, parts: Callable[[], Parts | None]) -> None:
        self._parts = parts  # None: until the broker serves there is nothing but the process to tell of
        self._text = b""
        self._rendered_at = float("-inf")
        self._rendering: asyncio.Task[bytes] | None = None
        self._process = ProcessCollector(registry=None)

    async def text(self) -> bytes:
        """The exposition; whoever asks while it is rendered gets the same one."""
        if asyncio.get_running_loop().time() - self._rendered_at < _CACHE_S:
            return self._text
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(self._render())
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        try:
            chunks = [generate_latest(self._process)]
            for chunk in _chunks(self._parts()):
                chunks.append(chunk)
                await asyncio.sleep(0)
            self._text = b"".join(chunks)
            self._rendered_at = asyncio.get_running_loop().time()
            return self._text
        finally:
            self._rendering = None


def document() -> str:
    """The table of all metrics as Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|-|-|-|-|"]
    for family in FAMILIES:
        name = f"{family.name}_total" if family.kind == COUNTER else family.name
        labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
        lines.append(f"| `{name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


class _Given(Collector):
    """One family, already collected."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def _chunks(parts: Parts | None) -> Iterator[bytes]:
    if parts is None:
        return
    for family in FAMILIES:
        if not family.is_on(parts):
            continue
        if family.kind == HISTOGRAM:
            yield from _histograms(family, parts)
            continue
        read = family.read(parts)
        found = summed(family, read) if _is_summed(family, parts) else read
        samples = islice(found, parts.live.current.metrics.series_max)
        is_first = True
        while part := list(islice(samples, _CHUNK_SERIES)):
            text = generate_latest(_Given(_metric(family, part)))
            yield text if is_first else _without_head(text)
            is_first = False


def _is_summed(family: Family, parts: Parts) -> bool:
    """Whether the family says one sum for all topics and groups: those with a switch of their own are off instead."""
    is_switched = family.is_on in (_per_topic, _per_queue)
    return family.has_names and not is_switched and not _per_topic(parts)


def _metric(family: Family, samples: list[Sample]) -> Metric:
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric


def _histograms(family: Family, parts: Parts) -> Iterator[bytes]:
    """One, or one per topic."""
    by_topic = _HISTOGRAMS_BY_TOPIC.get(family.name)
    if by_topic is None:
        yield generate_latest(_Given(_histogram(family, [], _HISTOGRAMS[family.name](parts))))
        return
    found = summed_histogram(by_topic(parts)) if _is_summed(family, parts) else by_topic(parts)
    series = islice(found, parts.live.current.metrics.series_max)
    for number, (topic, counted) in enumerate(series):
        text = generate_latest(_Given(_histogram(family, [topic], counted)))
        yield text if number == 0 else _without_head(text)


def _histogram(family: Family, labels: list[str], counted: Counted) -> Metric:
    bounds, counts, sum_value = counted
    buckets = list(zip([*map(str, bounds), "+Inf"], map(float, accumulate(counts)), strict=True))
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    metric.add_metric(labels, buckets, sum_value=sum_value)
    return metric


def _without_head(text: bytes) -> bytes:
    return b"".join([line for line in text.splitlines(keepends=True) if not line.startswith(b"#")])
