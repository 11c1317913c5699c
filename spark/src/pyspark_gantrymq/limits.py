"""How many messages of each queue go into the next batch: in proportion to its backlog, at least one.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_gantrymq.offsets import Queue


def by_rows(backlog: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """Return how many of at most `rows_max` messages each queue gives: in proportion, at least one each."""
    total = sum(backlog.values())
    if total <= rows_max:
        return dict(backlog)
    return {queue: min(lag, max(1, lag * rows_max // total)) for queue, lag in backlog.items() if lag}


def by_bytes(shares: Mapping[Queue, int], sizes: Mapping[Queue, int], bytes_max: int) -> dict[Queue, int]:
    """Reduce the shares to about `bytes_max` bytes, at least one message each; `sizes`: bytes of one message."""
    total = sum([share * sizes.get(queue, 0) for queue, share in shares.items()])
    if total <= bytes_max:
        return dict(shares)
    return {queue: min(share, max(1, share * bytes_max // total)) for queue, share in shares.items() if share}
