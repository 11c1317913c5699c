"""One metric of the table in `metrics`: what it is called, what it means, and how it is read.

A family's `read` looks at the parts when somebody asks and gives a number for each set of label values; nothing is kept
here.  Histograms have no `read`: `metrics` makes their buckets of what the parts counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

Sample = tuple[tuple[str, ...], float]
Counted = tuple[Sequence[float], Sequence[int], float]
"""Of a histogram: bounds, counts between them, sum of the values."""
Switch = Callable[["Parts"], bool]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    """One metric; counters are named without their `_total`."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Parts], Iterable[Sample]]
    is_on: Switch = lambda parts: True


def one(read: Callable[[Parts], float]) -> Callable[[Parts], Iterable[Sample]]:
    """A family without labels."""
    return lambda parts: [((), read(parts))]
