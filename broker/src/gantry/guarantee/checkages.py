"""How old a half is at least whose outcome a broker asks for, without a look at any wall clock.

The member that is asked is another machine than the one that sent the half, and either may have a wrong clock: a half
that counted as old would be rolled back while its transaction runs.  A broker of ours says how long it has had the
half.  RocketMQ's does not: then the half is as old as this process has been asked about it, which is less than it is.
"""

from __future__ import annotations

from collections import OrderedDict

from gantry.clock import Clock
from gantry.model.message import StoredMessage

_ASKED_MAX = 10_000  # some 2 MB; a half that was forgotten counts as asked about for the first time


class CheckAges:
    """Since when this process is asked about halves, by message id.  For one loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_s: OrderedDict[str, float] = OrderedDict()

    def measure_age_ms(self, half: StoredMessage) -> float:
        """Return for how many ms the half has been there at least; note that it was asked about."""
        if half.age_ms is not None:
            return half.age_ms
        now_s = self._clock.monotonic()
        first_s = self._asked_s.setdefault(half.message_id, now_s)
        self._asked_s.move_to_end(half.message_id)
        if len(self._asked_s) > _ASKED_MAX:
            self._asked_s.popitem(last=False)
        return (now_s - first_s) * 1000
