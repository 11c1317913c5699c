"""Numbers in a status: two digits, seldom, and not all objects at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry_operator.declared.numbers import Bucket, rounded, told


@pytest.mark.parametrize(("value", "shown"), [(0, 0), (7, 7), (99, 99), (104, 100), (1249, 1200), (99_600, 100_000)])
def test_a_number_has_two_digits(value: int, shown: int) -> None:
    assert rounded(value) == shown


@given(st.integers(0, 10**12), st.none() | st.integers(0, 10**12))
def test_what_is_told_is_near_and_zero_means_zero(value: int, former: int | None) -> None:
    said = told(former, value)
    assert (said == 0) == (value == 0)
    assert abs(said - value) <= value / 5


def test_a_small_move_is_not_told() -> None:
    assert [told(1200, each) for each in (1100, 1300, 1321, 0)] == [1200, 1200, 1300, 0]


def test_a_bucket_gives_so_many_a_second() -> None:
    bucket = Bucket(5)
    assert [bucket.take(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.take(0.4) for _ in range(3)] == [True, True, False]
    assert [bucket.take(99.0) for _ in range(6)] == [True] * 5 + [False]
