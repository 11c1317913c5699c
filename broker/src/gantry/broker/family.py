"""One metric of the table in `metrics`: what it is called, what it means, and how it is read.

A family's `read` looks at the parts when somebody asks and gives a number for each set of label values; nothing is kept
here.  Histograms have no `read`: `metrics` makes their buckets of what the parts counted.
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
Switch = Callable[["Parts"], bool]

# Labels whose values are made by users, so that their number is nobody's to say.
_NAMES = frozenset({"topic", "consumer_group", "producer_group", "group"})

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    """One metric; counters are named without their `_total`."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Parts], Iterable[Sample]]
    is_on: Switch = lambda parts: True

    @property
    def has_names(self) -> bool:
        """Whether it has a series for each name that users made."""
        return not _NAMES.isdisjoint(self.labels)


def one(read: Callable[[Parts], float]) -> Callable[[Parts], Iterable[Sample]]:
    """A family without labels."""
    return lambda parts: [((), read(parts))]


def summed(family: Family, samples: Iterable[Sample]) -> Iterable[Sample]:
    """Over all names; an empty label is, for Prometheus, one that is not there."""
    totals: dict[tuple[str, ...], float] = {}
    for labels, value in samples:
        key = tuple("" if name in _NAMES else label for name, label in zip(family.labels, labels, strict=True))
        totals[key] = totals.get(key, 0) + value
    return totals.items()


def summed_histogram(series: Iterable[tuple[str, Counted]]) -> list[tuple[str, Counted]]:
    """One histogram of several with the same bounds."""
    total: Counted | None = None
    for _, (bounds, counts, sum_value) in series:
        before = ([0] * len(counts), 0.0) if total is None else total[1:]
        total = bounds, list(map(add, before[0], counts)), before[1] + sum_value
    return [] if total is None else [("", total)]
