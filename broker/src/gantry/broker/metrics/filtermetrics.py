"""Metrics of filters: families for the table in `families`.

`gantry_filter_rejected_total` divided by `gantry_filter_examined_total` is the share of messages that SQL filters
reject. When it is near 1 and there are many messages, a separate topic would be cheaper.  Tag filters are not counted:
they compare twenty bytes for each message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample, one

if TYPE_CHECKING:
    from gantry.broker.parts import Parts


def _disagreements(parts: Parts) -> Iterator[Sample]:
    yield from list(parts.disagreements.found.items())


FAMILIES = (
    Family(GAUGE, "gantry_filters", "SQL filters of consumer groups that are kept.", (), one(lambda p: len(p.filters))),
    Family(
        COUNTER,
        "gantry_filter_faults",
        "Heartbeats with an SQL filter that was refused; the log has why.",
        (),
        one(lambda parts: parts.filters.faults),
    ),
    Family(
        COUNTER,
        "gantry_filter_examined",
        "Messages that SQL filters looked at for pulls.",
        (),
        one(lambda parts: parts.pulls.counts.sifted),
    ),
    Family(
        COUNTER,
        "gantry_filter_rejected",
        "Messages that SQL filters looked at and left out.",
        (),
        one(lambda parts: parts.pulls.counts.sifted_out),
    ),
    Family(
        GAUGE,
        "gantry_subscription_disagreements",
        "In how many ways members of a group subscribe to a topic, where it is more than one: messages are skipped.",
        ("group", "topic"),
        _disagreements,
    ),
)
