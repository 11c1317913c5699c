"""The serving lease: until when a master may serve without another renewal.

    lease     the moment at which the last successful renewal was *sent*, and two thirds of the lease
    grants    every other member of the in-sync set answered a beat: until `grant_s` after that beat was *sent*, since
              each of them promises no other epoch for that long after it *came*

One of the two is enough.  They count from the moment of sending, so that a process that was paused wakes up without a
serving lease; each request is checked against the clock.  Acknowledgements under SYNC_MASTER with minInSync >= 2 do not
depend on it, but on the promises of the slaves.  The serving lease prevents stale reads and commits of offsets, and
acknowledgements of a master that confirms alone.
"""

from __future__ import annotations

from collections.abc import Iterable


class ServingLease:
    """The serving lease of one epoch; times are seconds on a monotonic clock."""

    def __init__(self, grant_s: float) -> None:
        self.until_s = 0.0
        self._grant_s = grant_s
        self._lease_until_s = 0.0
        self._grants: dict[int, float] = {}
        self._is_over = False

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Note that a renewal which was sent at `sent_s` succeeded."""
        self._lease_until_s = max(self._lease_until_s, sent_s + lease_s * 2 / 3)
        self.until_s = max(self.until_s, self._lease_until_s)

    def granted(self, place: int, beat_s: float, others: Iterable[int]) -> None:
        """Note that the member in this place answered the beat of `beat_s`; `others`: the set without this master."""
        self._grants[place] = max(beat_s + self._grant_s, self._grants.get(place, 0.0))
        self.count(others)

    def count(self, others: Iterable[int]) -> None:
        """Recalculate the grants after the set has changed, or a grant arrived."""
        granted = min((self._grants.get(other, 0.0) for other in others), default=0.0)
        self.until_s = max(self._lease_until_s, granted)

    def end(self) -> None:
        """End it at once, whatever renewals and grants remain."""
        self._is_over = True

    def go_on(self) -> None:
        """Undo end(), after a handover was given up."""
        self._is_over = False

    def is_valid(self, now_s: float) -> bool:
        """Return whether this master may serve now."""
        return now_s < self.until_s and not self._is_over
