"""Properties as numbers, the way Java reads them: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`.

An integer is an optional sign and ASCII digits and has to fit (Java accepts digits of other scripts too; they are not
in use).  A double may have blanks around it, a trailing f or d, be NaN, Infinity or hexadecimal.  Anything else
raises NotComparableError: in RocketMQ such a message does not match, whatever the rest of the expression is.
Doubles have Java's total order: NaN is greater than everything and equal to itself, -0.0 less than 0.0.
"""

from __future__ import annotations

import re
from math import copysign, isnan

_I32_DIGITS_SURE, _I64_DIGITS_SURE = 9, 18
_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})")
_DOUBLE = re.compile(
    rb"[\x00-\x20]*([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    rb"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


class NotComparableError(Exception):
    """The property is no such number; never leaves the package."""


def integer(value: bytes) -> int:
    """Read a property as a 32-bit integer; NotComparableError when it is none."""
    if value.isdigit() and len(value) <= _I32_DIGITS_SURE:
        return int(value)
    return _bounded(value, 2**31)


def long(value: bytes) -> int:
    """Read a property as a 64-bit integer; NotComparableError when it is none."""
    if value.isdigit() and len(value) <= _I64_DIGITS_SURE:
        return int(value)
    return _bounded(value, 2**63)


def double(value: bytes) -> float:
    """Read a property as a double; NotComparableError when it is none."""
    match = _DOUBLE.fullmatch(value)
    if match is None:
        raise NotComparableError
    sign, nan, infinity, decimal, hexadecimal = match.groups()
    if nan:
        return float("nan")
    if infinity:
        number = float("inf")
    elif decimal:
        number = float(decimal)
    else:
        number = _from_hexadecimal(hexadecimal)
    return -number if sign == b"-" else number


def compare(left: float, right: float) -> int:
    """Below 0, 0 or above 0, like Java's `compareTo` of two numbers of one type."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and (left != 0 or isinstance(left, int)):
        return 0
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(number: float) -> float:
    """Return the order among numbers that `<` does not tell apart: -0.0, 0.0, anything else, NaN."""
    return 2.0 if isnan(number) else copysign(1.0, number) if number == 0 else 1.5


def _bounded(value: bytes, limit: int) -> int:
    match = _INTEGER.fullmatch(value)
    if match is None:
        raise NotComparableError
    number = int(match[1] + match[2])
    if not -limit <= number < limit:
        raise NotComparableError
    return number


def _from_hexadecimal(text: bytes) -> float:
    try:
        return float.fromhex(text.decode())
    except OverflowError:
        return float("inf")
