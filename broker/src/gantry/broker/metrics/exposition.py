"""/metrics: renders the table of `families` for each scrape, with prometheus_client.

A census of queues and groups comes first, then family by family, a few series at a time.  After each SLICE_S of work
other tasks get PAUSE_S, so that a scrape of many series does not delay a send.  Old records that the census needs are
read by the cold reader, and a scrape waits for the disk for a second at most.  The text is kept for a second, so that
many scrapers cost as much as one.

Everything is bounded, whatever the number of topics: a family stops at `series_max`, the whole text at SERIES_MAX, and
`gantry_metrics_cut` names the families that were cut.  Without `per_topic`, families with a series for each topic or
group are off, or are sums over all of them; those with one for each queue are off unless configured.

`broker/docs/metrics.md` is generated from FAMILIES by `document`; a test compares them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry.broker.metrics.families import FAMILIES, HISTOGRAMS, HISTOGRAMS_BY_NAME, per_queue
from gantry.broker.metrics.family import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Counted,
    Family,
    per_topic,
    summed,
    summed_histogram,
)
from gantry.broker.parts import Parts
from gantry.store.keysearch import Begin

SLICE_S = 0.0005
PAUSE_S = 0.001  # a third of the loop at most, and 10 000 series take a second
SERIES_MAX = 200_000
_PIECE_SERIES = 20  # some 0.2 ms
_CACHE_S = 1.0
_DISK_S = 1.0  # of one scrape
_CUT, _CUT_HELP = "gantry_metrics_cut", "Metrics with more series than are shown; always 1."
_KINDS = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}
_Shown = tuple[tuple[str, ...], float | Counted]


class Metrics:
    """Renders the table for one broker; the text is kept for a second."""

    def __init__(self, parts: Callable[[], Parts | None]) -> None:
        self._parts = parts  # returns None until the broker serves; then only the process's own metrics are shown
        self._text = b""
        self._rendered_at = float("-inf")
        self._rendering: asyncio.Task[bytes] | None = None
        self._process = ProcessCollector(registry=None)

    async def text(self) -> bytes:
        """Return the exposition text; concurrent callers share one rendering."""
        if asyncio.get_running_loop().time() - self._rendered_at < _CACHE_S:
            return self._text
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(self._render())
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        try:
            chunks = [generate_latest(self._process)]
            time = asyncio.get_running_loop().time
            since, disk_until_s = time(), time() + _DISK_S
            for piece in _pieces(self._parts()):
                if not isinstance(piece, bytes):
                    await _wait_for(piece, disk_until_s)
                    since = time()
                    continue
                chunks.append(piece)
                if time() - since >= SLICE_S:
                    await asyncio.sleep(PAUSE_S)
                    since = time()
            self._text = b"".join(chunks)
            self._rendered_at = time()
            return self._text
        finally:
            self._rendering = None


async def _wait_for(begin: Begin, until_s: float) -> None:
    """Begin a read of the disk and wait for it, at most until then (the loop's time)."""
    is_there = asyncio.Event()
    begin(is_there.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until_s):
            await is_there.wait()


def document() -> str:
    """Return the table of all metrics as Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|-|-|-|-|"]
    for family in FAMILIES:
        name = f"{family.name}_total" if family.kind == COUNTER else family.name
        labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
        lines.append(f"| `{name}` | {family.kind} | {labels} | {family.help} |")
    lines.append(f"| `{_CUT}` | gauge | `metric` | {_CUT_HELP} |")
    return "\n".join(lines) + "\n"


class _Given(Collector):
    """A collector for one family that was already read."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def _pieces(parts: Parts | None) -> Iterator[bytes | Begin]:
    """Yield the text in pieces, each rendered in a part of a millisecond; some are empty.  Between them what begins a
    read of the disk that may be waited for.
    """
    if parts is None:
        return
    for begin in parts.census.take():
        yield begin or b""
    family_max, left = parts.live.current.metrics.series_max, SERIES_MAX
    cut: list[str] = []
    for family in FAMILIES:
        if not family.is_on(parts):
            continue
        samples = _samples(family, parts)
        is_first = True
        allowed = min(family_max, left)
        while part := list(islice(samples, min(_PIECE_SERIES, allowed))):
            text = generate_latest(_Given(_metric(family, part)))
            yield text if is_first else _without_head(text)
            allowed, left, is_first = allowed - len(part), left - len(part), False
        if next(samples, None) is not None:
            cut.append(family.name)
    yield generate_latest(_Given(_cut(cut)))


def _samples(family: Family, parts: Parts) -> Iterator[_Shown]:
    if family.kind != HISTOGRAM:
        read = family.read(parts)
        return iter(summed(family, read) if _is_summed(family, parts) else read)
    by_name = HISTOGRAMS_BY_NAME.get(family.name)
    if by_name is None:
        return iter([((), HISTOGRAMS[family.name](parts))])
    return iter(summed_histogram(family, by_name(parts)) if _is_summed(family, parts) else by_name(parts))


def _is_summed(family: Family, parts: Parts) -> bool:
    """Return whether the family shows one sum for all topics and groups; those with their own switch are off
    instead.
    """
    is_switched = family.is_on in (per_topic, per_queue)
    return family.has_names and not is_switched and not per_topic(parts)


def _metric(family: Family, samples: list[_Shown]) -> Metric:
    metric: Metric = _KINDS[family.kind](family.name, family.help, labels=family.labels)
    for labels, value in samples:
        if isinstance(value, tuple):
            assert isinstance(metric, HistogramMetricFamily), f"{family.name} is read as a histogram and is none"
            bounds, counts, sum_value = value
            buckets = list(zip([*map(str, bounds), "+Inf"], map(float, accumulate(counts)), strict=True))
            metric.add_metric(labels, buckets, sum_value=sum_value)
        else:
            assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily), f"{family.name} is a histogram"
            metric.add_metric(labels, value)
    return metric


def _cut(names: list[str]) -> Metric:
    metric = GaugeMetricFamily(_CUT, _CUT_HELP, labels=("metric",))
    for name in names:
        metric.add_metric((name,), 1)
    return metric


def _without_head(text: bytes) -> bytes:
    return b"".join([line for line in text.splitlines(keepends=True) if not line.startswith(b"#")])
