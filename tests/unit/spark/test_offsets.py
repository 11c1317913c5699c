"""Where a stream stands: what a batch begins and ends at, and that equal offsets are equal texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_gantrymq import offsets
from pyspark_gantrymq.offsets import Queue, Stretch

A, B, C = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 10), Queue("orders", "broker-b", 2)


def test_the_first_end_says_where_each_queue_begins() -> None:
    end = offsets.end({}, {A: 5, B: 0}, {A: 9})
    assert offsets.stretches(offsets.sentinel("earliest"), end) == [Stretch(A, 5, 9)]
    assert offsets.positions(end) == {A: 9, B: 0}


def test_a_queue_that_appears_later_begins_where_its_batch_says() -> None:
    start = offsets.end({}, {A: 0}, {A: 9})
    end = offsets.end(offsets.positions(start), {C: 3}, {A: 9, C: 7})
    assert offsets.stretches(start, end) == [Stretch(C, 3, 7)]


def test_a_queue_that_is_away_keeps_its_position() -> None:
    start = offsets.end({}, {A: 0, C: 0}, {A: 9, C: 4})
    end = offsets.end(offsets.positions(start), {}, {A: 12})
    assert offsets.positions(end) == {A: 12, C: 4}


@given(st.permutations([A, B, C]))
def test_equal_offsets_are_equal_texts(order: list[Queue]) -> None:
    text = json.dumps(offsets.end(dict.fromkeys(order, 1), dict.fromkeys(order, 0), {}))
    assert text == json.dumps(offsets.end({A: 1, B: 1, C: 1}, {A: 0, B: 0, C: 0}, {}))


def test_offsets_of_a_later_release_are_refused() -> None:
    with pytest.raises(ValueError, match="version 2, this release reads 1"):
        offsets.stretches(offsets.sentinel("latest"), {"q": {}, "v": 2})


@given(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 10_000)), st.integers(1, 10_000))
def test_shares_follow_the_backlog_and_starve_nobody(backlog: dict[Queue, int], rows_max: int) -> None:
    shares = offsets.shares(backlog, rows_max)
    assert all(0 < shares.get(queue, 0) <= lag for queue, lag in backlog.items() if lag)
    assert sum(shares.values()) <= max(rows_max, len(backlog)) + len(backlog)
