"""The operator's metrics for Prometheus: `gantrymq_operator_*`.

No label names a cluster, a namespace or an object.  Kinds, verbs, classes of errors and outcomes are fixed words, so
the number of series does not depend on the number of objects.  Values of other parts (the queue, the watches, the
election) are read at the scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BUG = "bug"
CLASSES = ("transient", "timeout", "conflict", "forbidden", "invalid", "other", BUG)
PASS_S_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Gauges(NamedTuple):
    """Values that are read at a scrape."""

    leads: bool
    keys_due: int
    queue_s: float
    watch_s: dict[str, float]
    unwatched: int


class Metrics:
    """The operator's counters and histograms in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = Counter(
            "gantrymq_operator_passes",
            "Passes over an object: done, or to be repeated (failed)",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.pass_s = Histogram(
            "gantrymq_operator_pass_seconds",
            "How long a pass takes",
            ["kind"],
            buckets=PASS_S_BUCKETS,
            registry=self.registry,
        )
        self.errors = Counter(
            "gantrymq_operator_errors",
            "What failed or was refused: transient (API server away or busy), timeout, conflict, forbidden, invalid, "
            "other, bug",
            ["class"],
            registry=self.registry,
        )
        self.writes = Counter(
            "gantrymq_operator_api_writes",
            "Writes that the API server took, by verb and kind",
            ["verb", "resource"],
            registry=self.registry,
        )
        self.failovers = Counter(
            "gantrymq_operator_failovers",
            "Steps of failovers that this operator took: seal (an epoch ended), promote (another one began)",
            ["step"],
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        for kind in CLASSES:  # what has not happened yet is zero, not nothing
            self.errors.labels(kind)
        for step in ("seal", "promote"):
            self.failovers.labels(step)

    def wrote(self, verb: str, resource: str) -> None:
        """Count a write that the API server accepted."""
        self.writes.labels(verb, resource).inc()

    def refused(self, status: int) -> None:
        """Count a refusal of the API server (HTTP status) after which the pass went on."""
        self.errors.labels(class_of(status)).inc()

    def watch(self, gauges: Callable[[], Gauges]) -> None:
        """Register the function that returns the gauges at each scrape."""
        self.registry.register(_Asked(gauges))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _Asked(Collector):
    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        now = self._gauges()
        yield GaugeMetricFamily("gantrymq_operator_leader", "1: this one leads", float(now.leads))
        yield GaugeMetricFamily("gantrymq_operator_queue_keys", "Objects whose pass is due", now.keys_due)
        said = "Groups of known clusters without a failover loop; a cluster that cannot be read counts as one"
        yield GaugeMetricFamily("gantrymq_operator_groups_unwatched", said, now.unwatched)
        oldest = "How long the oldest of them waits, or is worked on"
        yield GaugeMetricFamily("gantrymq_operator_queue_age_seconds", oldest, now.queue_s)
        said = "Since a watch was last heard of; a bookmark comes each minute"
        ages = GaugeMetricFamily("gantrymq_operator_watch_age_seconds", said, labels=["resource"])
        for kind, age in sorted(now.watch_s.items()):
            ages.add_metric([kind], age)
        yield ages


def class_of(status: int | None) -> str:
    """Return the class of an error by the HTTP status of the API server; 0: no answer, None: another error."""
    if status is None:
        return "invalid"
    if status in (0, 408, 429) or status >= 500:
        return "transient"
    return {403: "forbidden", 409: "conflict", 400: "invalid", 422: "invalid"}.get(status, "other")
