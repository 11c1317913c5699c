"""For how long a master may serve without asking: its serving lease, by the clock.

    lease     the moment at which the last successful renewal was *sent*, and two thirds of the lease
    grants    every other member of the in-sync set answered a beat: until `grant_s` after that beat was *sent*, since
              each of them promises no other epoch for that long after it *came*

Either is enough.  Times are those of sending, so that a process which stood still wakes up without a serving lease;
anyone who serves looks at the clock at that moment.  Nothing acknowledged under SYNC_MASTER with minInSync >= 2 depends
on it: the promises of the slaves see to that.  It ends stale reads, commits of offsets, and what a master acknowledges
alone.
"""

from __future__ import annotations

from collections.abc import Iterable


class ServingLease:
    """One mastership's; times are seconds of the clock that never goes back."""

    def __init__(self, grant_s: float) -> None:
        self.until_s = 0.0
        self._grant_s = grant_s
        self._lease_until_s = 0.0
        self._grants: dict[int, float] = {}
        self._is_over = False

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """A renewal that was sent then has succeeded."""
        self._lease_until_s = max(self._lease_until_s, sent_s + lease_s * 2 / 3)
        self.until_s = max(self.until_s, self._lease_until_s)

    def granted(self, place: int, beat_s: float, others: Iterable[int]) -> None:
        """The member in this place answered the beat of that moment; `others`: who is in the set besides us."""
        self._grants[place] = max(beat_s + self._grant_s, self._grants.get(place, 0.0))
        self.count(others)

    def count(self, others: Iterable[int]) -> None:
        """The set is another one, or a grant came."""
        granted = min((self._grants.get(other, 0.0) for other in others), default=0.0)
        self.until_s = max(self._lease_until_s, granted)

    def end(self) -> None:
        """Serve nobody any more, whatever renewals and grants are left."""
        self._is_over = True

    def go_on(self) -> None:
        """What was ended in order to hand over goes on after all."""
        self._is_over = False

    def is_valid(self, now_s: float) -> bool:
        """Whether we may serve now."""
        return now_s < self.until_s and not self._is_over
