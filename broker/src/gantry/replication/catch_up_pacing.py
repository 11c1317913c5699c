"""How fast a slave that is far behind is fed: it gets what producers leave of the master's time.

A slave that catches up takes as much as it is given: of the master's loop, of the network, of both disks.  So a master
that receives messages limits it, by a rate that it adjusts ten times a second:

    its loop ran or waited for a core    nothing was appended      something was
    less than 60 % of the time           half as much again        half as much again
    in between                           half as much again        as before
    more than 75 %                       half as much again        a quarter of it

The rate has a floor, because a slave might never catch up otherwise: `GAIN` bytes for each byte that is appended, plus
`FLOOR_BYTES_S`.  So a slave that is B bytes behind catches up within B / FLOOR_BYTES_S seconds, however much is
produced.  At the ceiling nothing is counted.  Waiting for a core counts as running: a slave on the same machine takes
the master's time in that way.

Which slaves are limited is decided in `slave_links`: one that is near the end, or that writes wait for, is not.

`CatchUpPacing` is the rate for all links of a master, `Ration` the account of one link.  Times are seconds on a
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable

GAIN = 1.25
FLOOR_BYTES_S = 16 << 20
LOOK_S = 0.1
_EASY, _BUSY = 0.6, 0.75
_STEP_BYTES_S, _CEILING_BYTES_S = 16 << 20, 1 << 30
_GROWTH = 1.5
_PAUSE_S = 1.0  # a measurement over a longer time says nothing about the last tenth of a second
_CREDIT_BYTES = 4 << 20


class CatchUpPacing:
    """The rate for slaves that catch up. `wanted_s` returns for how many seconds in total the loop's thread ran or
    waited for a core.
    """

    def __init__(self, wanted_s: Callable[[], float]) -> None:
        self.extra = float(_CEILING_BYTES_S)  # bytes a second beyond the floor, for each link
        self._wanted_s = wanted_s
        self._before = (-_PAUSE_S, 0.0, 0)

    @property
    def is_plenty(self) -> bool:
        """Return whether the rate is at the ceiling, where nothing has to be counted."""
        return self.extra >= _CEILING_BYTES_S

    def look(self, now_s: float, written: int) -> None:
        """Adjust the rate; the log ends at `written` now. Calls within `LOOK_S` of the last one change nothing."""
        then_s, wanted_then_s, written_then = self._before
        if now_s - then_s < LOOK_S:
            return
        wanted_s = self._wanted_s()
        self._before = (now_s, wanted_s, written)
        if now_s - then_s > _PAUSE_S:
            return
        share = (wanted_s - wanted_then_s) / (now_s - then_s)
        if written == written_then or share < _EASY:
            self.extra = min(max(_GROWTH * self.extra, _STEP_BYTES_S), _CEILING_BYTES_S)
        elif share > _BUSY:
            self.extra = self.extra / 4 if self.extra > _STEP_BYTES_S else 0.0


class Ration:
    """The bytes that one link may send."""

    def __init__(self, catch_up_pacing: CatchUpPacing) -> None:
        self._catch_up_pacing = catch_up_pacing
        self._credit = 0.0
        self._at = (0.0, 0)

    def is_used_up(self, now_s: float, written: int) -> bool:
        """Return whether nothing may be sent now; the log ends at `written`."""
        (then_s, written_then), self._at = self._at, (now_s, written)
        if self._catch_up_pacing.is_plenty:
            self._credit = 0.0
            return False
        rate = FLOOR_BYTES_S + self._catch_up_pacing.extra
        self._credit += GAIN * (written - written_then) + rate * (now_s - then_s)
        self._credit = min(self._credit, _CREDIT_BYTES)
        return self._credit <= 0

    def took(self, count: int) -> None:
        """Note that so many bytes were sent."""
        if not self._catch_up_pacing.is_plenty:
            self._credit = max(self._credit - count, -_CREDIT_BYTES)
