"""Metrics of ordered consumption and of request and reply: families for the table in `families`.

`refused` locks are normal during a rebalance; many `expired` ones mean consumers that die or cannot reach the broker.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample, one
from gantry.broker.parts import Parts


def _lock_requests(parts: Parts) -> Iterator[Sample]:
    for result in ("granted", "renewed", "refused", "released", "expired"):
        yield (result,), getattr(parts.locks.counts, result)


def _replies(parts: Parts) -> Iterator[Sample]:
    for result in ("delivered", "unclaimed", "failed"):
        yield (result,), getattr(parts.replies.counts, result)


FAMILIES: tuple[Family, ...] = (
    Family(GAUGE, "gantry_queue_locks", "Queues that an orderly consumer has locked.", (), one(lambda p: len(p.locks))),
    Family(
        COUNTER,
        "gantry_queue_lock_requests",
        "What became of queue locks; refused ones are tried again by their clients.",
        ("result",),
        _lock_requests,
    ),
    Family(
        COUNTER,
        "gantry_replies",
        "Replies handed on to the producer that asked; unclaimed: it is not connected.",
        ("result",),
        _replies,
    ),
)
