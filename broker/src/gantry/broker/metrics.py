"""/metrics: the table of families (`metrictable`), rendered when somebody asks.

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

from gantry.broker.family import COUNTER, HISTOGRAM, Counted, Family, Sample, summed, summed_histogram
from gantry.broker.metrictable import FAMILIES, HISTOGRAMS, HISTOGRAMS_BY_TOPIC, per_queue, per_topic
from gantry.broker.parts import Parts

_CHUNK_SERIES = 200
_CACHE_S = 1.0


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
    is_switched = family.is_on in (per_topic, per_queue)
    return family.has_names and not is_switched and not per_topic(parts)


def _metric(family: Family, samples: list[Sample]) -> Metric:
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric


def _histograms(family: Family, parts: Parts) -> Iterator[bytes]:
    """One, or one per topic."""
    by_topic = HISTOGRAMS_BY_TOPIC.get(family.name)
    if by_topic is None:
        yield generate_latest(_Given(_histogram(family, [], HISTOGRAMS[family.name](parts))))
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
