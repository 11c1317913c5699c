"""How late one member's share of the acknowledgements is: the log's, or that of changes of the metadata.

Progress is no sign of health: a disk that takes 4 s for each sync makes progress for ever, and each message that waits
for it is too late for its producer.  So a probe measures what a message would wait: it begins with the end of our log
when the member lacks something, and ends when the member has all of that.

    slow     a probe took `slow_s` or longer, half of what producers wait: a message that came just after a sync began
             waits for two of them
    quick    it took less than half of that; only quick ones undo what slow ones have added up

The time of slow probes adds up, also over pauses in which nothing is written.  Times are seconds on a monotonic clock.
"""

from __future__ import annotations

_NEAR = 0.5  # of the lateness that counts


class Lateness:
    """The probe that is under way, and what slow probes have added up."""

    __slots__ = ("_held", "_judged_s", "_late_s", "_not_quick_s", "_since_s", "_slow_at_s", "_slow_s", "probe")

    def __init__(self, slow_s: float, now_s: float) -> None:
        self.probe = -1  # how far the member has to come; -1: it has all that there is
        self._held = 0
        self._slow_s = slow_s
        self._late_s = 0.0
        self._since_s = self._judged_s = now_s
        self._not_quick_s = self._slow_at_s = float("-inf")  # when a probe last ended that was not quick, or was slow

    def reached(self, held: int, end: int, now_s: float) -> None:
        """Note that the member has everything below `held`; there is something up to `end`."""
        if held < self.probe or (self.probe < 0 and held <= self._held and held >= end):
            return  # nothing was asked for since the last probe
        took_s = self.lag_s(now_s)
        if took_s >= self._slow_s:
            self._late_s += took_s
            self._slow_at_s = now_s
        elif took_s < self._slow_s / 2:
            self._late_s = max(0.0, self._late_s - (now_s - self._judged_s))
        if took_s >= self._slow_s / 2:
            self._not_quick_s = now_s
        self._held, self._judged_s, self._since_s = held, now_s, now_s
        self.probe = -1 if held >= end else end

    def look(self, held: int, end: int, now_s: float) -> None:
        """Begin a probe when the member lacks something and none is under way."""
        if self.probe < 0 and held < end:
            self.probe, self._since_s = end, now_s

    def lag_s(self, now_s: float) -> float:
        """Return for how many seconds the member has lacked what was there before."""
        return now_s - self._since_s if self.probe >= 0 else 0.0

    def late_s(self, now_s: float) -> float:
        """Return how many seconds of lateness have added up, those of the present probe too."""
        lag_s = self.lag_s(now_s)
        return self._late_s + (lag_s if lag_s >= self._slow_s else 0.0)

    def quick_s(self, now_s: float) -> float:
        """Return for how many seconds no probe has been other than quick."""
        return 0.0 if self.lag_s(now_s) >= self._slow_s / 2 else now_s - self._not_quick_s

    def is_near(self, late_s: float, now_s: float) -> bool:
        """Return whether half of `late_s` has added up and more is added: a slow probe ended within that time.

        What was added before stays for as long as probes are neither slow nor quick, and leads to nothing.
        """
        is_adding = self.lag_s(now_s) >= self._slow_s or now_s - self._slow_at_s < late_s
        return is_adding and self.late_s(now_s) >= _NEAR * late_s

    def forget(self) -> None:
        """Begin to add up again."""
        self._late_s = 0.0
