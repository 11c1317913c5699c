"""How much of what waits goes into a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_gantrymq import limits
from pyspark_gantrymq.offsets import Queue

A, B, C = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 10), Queue("orders", "broker-b", 2)
BACKLOG = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 10_000))


@given(BACKLOG, st.integers(1, 10_000))
def test_shares_follow_the_backlog_and_starve_nobody(backlog: dict[Queue, int], rows_max: int) -> None:
    shares = limits.by_rows(backlog, rows_max)
    assert all(0 < shares.get(queue, 0) <= lag for queue, lag in backlog.items() if lag)
    assert sum(shares.values()) <= max(rows_max, len(backlog)) + len(backlog)


@given(BACKLOG, st.integers(1, 5000), st.integers(1, 10**7))
def test_bytes_cut_shares_down_and_starve_nobody(backlog: dict[Queue, int], size: int, bytes_max: int) -> None:
    sizes = dict.fromkeys(backlog, size)
    shares = limits.by_bytes(backlog, sizes, bytes_max)
    assert all(0 < shares.get(queue, 0) <= lag for queue, lag in backlog.items() if lag)
    assert sum(shares.values()) * size <= bytes_max + len(backlog) * size


def test_a_queue_of_large_messages_gives_fewer() -> None:
    assert limits.by_bytes({A: 100, B: 100}, {A: 1000, B: 10}, 10_100) == {A: 10, B: 10}
