"""Numbers in a status that move by themselves: seldom, rounded, and not all objects at once; pure.

Every write of a status is work for the API server and for everybody who watches.  So a number is told in two digits,
changes when it moved by more than a tenth or reached or left zero, and is written out of a bucket that all objects
share.
What people wait for (conditions, generations, who has what) does not pass here.
"""

from __future__ import annotations

_MOVED = 10  # a part of this


def rounded(value: int) -> int:
    """In two digits, never to zero."""
    unit: int = 10 ** max(len(str(abs(value))) - 2, 0)
    return (value + unit // 2) // unit * unit


def told(former: int | None, value: int) -> int:
    """The former number while it says enough."""
    if former is None or (former == 0) != (value == 0) or abs(value - former) * _MOVED > former:
        return rounded(value)
    return former


class Bucket:
    """So many tokens a second, and at most that many at once."""

    def __init__(self, a_second: float) -> None:
        self._a_second = a_second
        self._tokens = a_second
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Whether there was one."""
        self._tokens = min(self._a_second, self._tokens + max(now_s - self._at_s, 0.0) * self._a_second)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
