"""One family of the table in `families`: its name, meaning, and how it is read.

A family's `read` returns a number for each set of label values at each scrape; nothing is stored here.  Numbers that
many families share are read once before them, in slices (`census`).  Histograms have no `read`: `exposition` makes
their buckets from the counts of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

Sample = tuple[tuple[str, ...], float]
Counted = tuple[Sequence[float], Sequence[int], float]
"""Of a histogram: bounds, counts between them, sum of the values."""
CountedSample = tuple[tuple[str, ...], Counted]
Read = Callable[["Parts"], Iterable[Sample]]
Switch = Callable[["Parts"], bool]

# Labels with values that users choose, so that their number is unbounded.
_NAMES = frozenset({"topic", "consumer_group", "producer_group", "group"})

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    """One metric; names of counters are given without their `_total`."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...]
    read: Read
    is_on: Switch = lambda parts: True

    @property
    def has_names(self) -> bool:
        """Whether it has a series for each name that users chose."""
        return not _NAMES.isdisjoint(self.labels)


def one(read: Callable[[Parts], float]) -> Callable[[Parts], Iterable[Sample]]:
    """Return the `read` of a family without labels."""
    return lambda parts: [((), read(parts))]


def per_topic(parts: Parts) -> bool:
    """Return whether there is a series for each topic and group."""
    return parts.live.current.metrics.per_topic


def summed(family: Family, samples: Iterable[Sample]) -> Iterable[Sample]:
    """Return the samples summed over all names that users chose."""
    totals: dict[tuple[str, ...], float] = {}
    for labels, value in samples:
        key = _nameless(family, labels)
        totals[key] = totals.get(key, 0) + value
    return totals.items()


def summed_histogram(family: Family, series: Iterable[CountedSample]) -> Iterable[CountedSample]:
    """Return the histograms summed over all names that users chose; all have the same bounds."""
    totals: dict[tuple[str, ...], Counted] = {}
    for labels, (bounds, counts, sum_value) in series:
        key = _nameless(family, labels)
        _, before, sum_before = totals.get(key, (bounds, [0] * len(counts), 0.0))
        totals[key] = bounds, list(map(add, before, counts)), sum_before + sum_value
    return totals.items()


def _nameless(family: Family, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels without names; Prometheus treats an empty label as a missing one."""
    return tuple("" if name in _NAMES else label for name, label in zip(family.labels, labels, strict=True))
