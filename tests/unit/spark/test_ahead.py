"""Pieces are read by several threads at once, and handed over as if there were one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_gantrymq.ahead import WAITING_MAX, in_order
from testkit.patience import HANG_S

Read = Callable[[int], Iterator[tuple[int, int]]]


@contextlib.contextmanager
def lane() -> Iterator[Read]:
    yield lambda piece: ((piece, number) for number in range(piece % 4))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5))
def test_results_come_in_the_order_of_the_pieces(pieces: list[int], lanes: int) -> None:
    assert list(in_order(pieces, lanes, lane)) == [(piece, number) for piece in pieces for number in range(piece % 4)]


def test_an_error_comes_out_where_its_piece_would() -> None:
    @contextlib.contextmanager
    def failing() -> Iterator[Read]:
        def read(piece: int) -> Iterator[tuple[int, int]]:
            yield piece, 0
            if piece == 2:
                raise RuntimeError("piece 2")

        yield read

    found = []
    with pytest.raises(RuntimeError, match="piece 2"):
        for piece, _ in in_order([0, 1, 2, 3, 4, 5], 3, failing):
            found.append(piece)
    assert found == [0, 1, 2]


def test_a_lane_that_cannot_be_opened_is_an_error() -> None:
    @contextlib.contextmanager
    def shut() -> Iterator[Read]:
        raise RuntimeError("no broker")
        yield

    with pytest.raises(RuntimeError, match="no broker"):
        list(in_order([1, 2], 2, shut))


def test_nobody_reads_further_ahead_than_may_wait_and_all_end_when_nobody_wants_more() -> None:
    made: list[int] = []
    closed = threading.Semaphore(0)

    @contextlib.contextmanager
    def endless() -> Iterator[Read]:
        def read(piece: int) -> Iterator[tuple[int, int]]:
            for number in range(1000):
                made.append(piece)
                yield piece, number

        yield read
        closed.release()

    results = in_order([0, 1], 2, endless)
    assert [next(results) for _ in range(10)] == [(0, number) for number in range(10)]
    results.close()
    assert closed.acquire(timeout=HANG_S) and closed.acquire(timeout=HANG_S)
    assert made.count(1) <= WAITING_MAX + 1 and made.count(0) <= 10 + WAITING_MAX + 2
