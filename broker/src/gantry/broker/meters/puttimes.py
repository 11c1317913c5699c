"""How long producers waited for their answers, in RocketMQ's buckets of putMessageDistributeTime.

GantryMQ's buckets are finer below 10 ms and coarser above 2 s.  Each is counted as a whole in the first of RocketMQ's
that reaches its upper bound, so no answer is shown as faster than it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.append.acks import LATENCY_BOUNDS_S
from gantry.consume.handlers import PullCounts

# Upper bound in seconds, name in the text of RocketMQ's tools, suffix of the exporter's metric.
BUCKETS = (
    (0.0, "<=0ms", "0ms"),
    (0.01, "0~10ms", "0to10ms"),
    (0.05, "10~50ms", "10to50ms"),
    (0.1, "50~100ms", "50to100ms"),
    (0.2, "100~200ms", "100to200ms"),
    (0.5, "200~500ms", "200to500ms"),
    (1.0, "500ms~1s", "500to1s"),
    (2.0, "1~2s", "1to2s"),
    (3.0, "2~3s", "2to3s"),
    (4.0, "3~4s", "3to4s"),
    (5.0, "4~5s", "4to5s"),
    (10.0, "5~10s", "5to10s"),
    (float("inf"), "10s~", "10stomore"),
)


def distributed(latencies: Sequence[int]) -> dict[str, int]:
    """Return the messages by RocketMQ's bucket name; `latencies` are counts between LATENCY_BOUNDS_S."""
    counts = dict.fromkeys([name for _, name, _ in BUCKETS], 0)
    for bound, count in zip((*LATENCY_BOUNDS_S, float("inf")), latencies, strict=True):
        counts[next(name for upper, name, _ in BUCKETS if bound <= upper)] += count
    return counts


def counters(put: int, pulls: PullCounts, latencies: Sequence[int]) -> dict[str, int]:
    """Return what the rates of a broker are computed from: messages put, found and missed pulls, waiting times."""
    return {"put": put, "found": pulls.found, "missed": pulls.missed, "got": pulls.messages, **distributed(latencies)}
