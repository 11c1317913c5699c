"""The serving lease: until when a master may serve without another sign that it still leads.

    renewal   a renewal in the register succeeded: `fresh_s` from when it was *sent*.  That is less than the time of
              suspicion, so another member is elected only later
    beats     every other member of the in-sync set answered a beat: `heard_s` from when that beat was *sent*.  A member
              that promised another epoch answers no beat of this master, and its link ends (`lost`)
    alone     a master without other members in the set: two thirds of the lease, because nobody else is electable

One of the first two is enough.  They count from the moment of sending, so that a process that was paused wakes up
without a serving lease; each request is checked against the clock.  Acknowledgements under SYNC_MASTER with minInSync
>= 2 do not depend on it, but on the promises of the slaves.  The serving lease prevents stale reads and commits of
offsets, and acknowledgements of a master that confirms alone: for that one an election waits (`failover.decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

LAPSED_S = 1.0  # a process that stood still for a moment renews within that time


class ServingLease:
    """The serving lease of one epoch; times are seconds on a monotonic clock."""

    def __init__(self, fresh_s: float, heard_s: float) -> None:
        self.until_s = 0.0
        self._fresh_s = fresh_s
        self._heard_s = heard_s
        self._sent_s = 0.0  # when the last successful renewal was sent
        self._lease_until_s = 0.0
        self._heard_until_s: dict[int, float] = {}
        self._others: Collection[int] = ()
        self._is_over = False

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Note that a renewal which was sent at `sent_s` succeeded."""
        self._sent_s = max(self._sent_s, sent_s)
        self._lease_until_s = max(self._lease_until_s, sent_s + lease_s * 2 / 3)
        self._count()

    def limit(self, sent_s: float, lease_s: float) -> None:
        """Note that a renewal with this lease is about to be sent: when it is carried out, it counts for elections."""
        self._lease_until_s = min(self._lease_until_s, sent_s + lease_s * 2 / 3)
        self._count()

    def answered(self, place: int, beat_s: float, others: Collection[int]) -> None:
        """Note that the member in this place answered the beat of `beat_s`; `others`: the set without this master."""
        self._heard_until_s[place] = max(beat_s + self._heard_s, self._heard_until_s.get(place, 0.0))
        self.count(others)

    def lost(self, place: int) -> None:
        """Note that the link to this member ended: it may have promised another epoch."""
        self._heard_until_s.pop(place, None)
        self._count()

    def count(self, others: Collection[int]) -> None:
        """Note the set without this master."""
        self._others = others
        self._count()

    def _count(self) -> None:
        if not self._others:
            self.until_s = self._lease_until_s
            return
        heard_s = min(self._heard_until_s.get(other, 0.0) for other in self._others)
        self.until_s = max(min(self._sent_s + self._fresh_s, self._lease_until_s), heard_s)

    def end(self) -> None:
        """End it at once, whatever renewals and answers remain."""
        self._is_over = True

    def go_on(self) -> None:
        """Undo end(), after a handover was given up."""
        self._is_over = False

    def is_valid(self, now_s: float) -> bool:
        """Return whether this master may serve now."""
        return now_s < self.until_s and not self._is_over


class LeaseNews:
    """Tells when the serving lease of a master has been over for `LAPSED_S`, and when it is back.

    tell: called with whether the master has one; the first call is made when it has none.
    """

    def __init__(self, serving_lease: ServingLease, tell: Callable[[bool], None]) -> None:
        self._serving_lease = serving_lease
        self._tell = tell
        self._lapsed_since_s: float | None = None
        self._is_told = False  # that there is none

    def look(self, now_s: float) -> None:
        """Compare with the clock; called a few times a second."""
        if self._serving_lease.is_valid(now_s):
            self._lapsed_since_s = None
        elif self._lapsed_since_s is None:
            self._lapsed_since_s = now_s
        is_over = self._lapsed_since_s is not None and now_s - self._lapsed_since_s >= LAPSED_S
        if is_over != self._is_told and (is_over or self._lapsed_since_s is None):
            self._is_told = is_over
            self._tell(not is_over)
