"""Numbers in a status that change by themselves: written seldom, rounded, and not for all objects at once; pure.

Every write of a status is work for the API server and for all its watchers.  So a number has two digits, changes only
when it moved by more than a tenth or reached or left zero, and each write takes a token from a bucket that all objects
share.
Other parts of a status (conditions, generations, placements) are not limited here.
"""

from __future__ import annotations

_MOVED = 10  # a change by more than a tenth counts


def rounded(value: int) -> int:
    """Round to two digits; a number above zero never becomes zero."""
    unit: int = 10 ** max(len(str(abs(value))) - 2, 0)
    return (value + unit // 2) // unit * unit


def told(former: int | None, value: int) -> int:
    """Return the former number while it is close enough, else the rounded new one."""
    if former is None or (former == 0) != (value == 0) or abs(value - former) * _MOVED > former:
        return rounded(value)
    return former


class Bucket:
    """A token bucket: it gets so many tokens a second, and holds at most that many."""

    def __init__(self, a_second: float) -> None:
        self._a_second = a_second
        self._tokens = a_second
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take a token; return False when there is none."""
        self._tokens = min(self._a_second, self._tokens + max(now_s - self._at_s, 0.0) * self._a_second)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
