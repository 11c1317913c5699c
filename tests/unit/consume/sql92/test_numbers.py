from __future__ import annotations

from math import inf, isnan, nan

import pytest

from gantry.consume.sql92 import numbers
from gantry.consume.sql92.numbers import NotComparableError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"5", 5),
        (b"-5", -5),
        (b"+5", 5),
        (b"007", 7),
        (b"2147483647", 2**31 - 1),
        (b"-2147483648", -(2**31)),
        (b"0" * 50, 0),
    ],
)
def test_integers_are_what_java_takes_for_one(text: bytes, value: int) -> None:
    assert numbers.integer(text) == numbers.long(text) == value


@pytest.mark.parametrize(
    "text", [b"", b"5.0", b" 5", b"5 ", b"1e3", b"+", b"0x10", b"5_0", b"9223372036854775808", b"1" * 5000]
)
def test_what_is_no_integer_raises(text: bytes) -> None:
    for read in (numbers.integer, numbers.long):
        with pytest.raises(NotComparableError):
            read(text)


def test_an_integer_has_32_bits_and_a_long_64() -> None:
    assert numbers.long(b"2147483648") == 2**31
    with pytest.raises(NotComparableError):
        numbers.integer(b"2147483648")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"5", 5.0), (b" 5.5 ", 5.5), (b"5.", 5.0), (b".5", 0.5), (b"-1e3", -1000.0), (b"1.5f", 1.5), (b"2D", 2.0),
        (b"Infinity", inf), (b"-Infinity", -inf), (b"1e999", inf), (b"0x1.8p1", 3.0), (b"0x1p99999", inf),
        (b"\t7\n", 7.0),
    ],
)  # fmt: skip
def test_doubles_are_what_java_takes_for_one(text: bytes, value: float) -> None:
    assert numbers.double(text) == value


def test_nan_is_a_double() -> None:
    assert isnan(numbers.double(b"NaN"))


@pytest.mark.parametrize(
    "text", [b"", b"x", b"1,5", b"nan", b"inf", b"1e", b"0x1", b"1_0", b"1.5ff", b".", "٣".encode()]
)
def test_what_is_no_double_raises(text: bytes) -> None:
    with pytest.raises(NotComparableError):
        numbers.double(text)


def test_the_order_of_doubles_is_total() -> None:
    ascending = [-inf, -1.0, -0.0, 0.0, 1.0, inf, nan]
    for place, left in enumerate(ascending):
        for other, right in enumerate(ascending):
            assert numbers.compare(left, right) == (place > other) - (place < other), (left, right)
    assert numbers.compare(0, 0) == 0
