"""The times of a group: two named sets whose values fit together.

    suspect   without a good answer of the master and without a renewal for this long, the master is sealed
    lease     how long a master that acknowledges alone is waited for; alone in its set it serves for two thirds of it
    renew     how often the master renews: a third of the lease at most, and twice within the time of suspicion
    poll      how often the coordinator asks: the death of a master is noticed up to one poll later

A coordinator derives its set from what the members say (`agreement`).  `fast` is for one rack and for tests: there a
pause of two seconds of the machine leads to a failover.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

LEASE_S_MIN = 3


@dataclass(frozen=True, slots=True)
class Timers:
    """One set of times, in seconds. The constructor raises ValueError for times that do not fit together."""

    suspect_after_s: float
    lease_s: int
    renew_every_s: float
    poll_every_s: float

    def __post_init__(self) -> None:
        if not self.lease_s >= LEASE_S_MIN or not 0 < self.suspect_after_s < self.lease_s:
            raise ValueError(
                f"a lease of {self.lease_s} s, suspicion after {self.suspect_after_s:g} s: expected a lease of "
                f"{LEASE_S_MIN} s or more, and suspicion before it ends"
            )
        if not 0 < self.renew_every_s <= min(self.lease_s / 3, self.suspect_after_s / 2):
            raise ValueError(
                f"a renewal every {self.renew_every_s:g} s: expected a third of the lease, half the suspicion, at most"
            )
        if not 0 < self.poll_every_s < self.suspect_after_s:
            raise ValueError(f"a question every {self.poll_every_s:g} s: expected more often than suspicion takes")

    @property
    def answer_within_s(self) -> float:
        """The time-out of one request to a member or to a register, in seconds."""
        return min(1.0, self.renew_every_s / 2)


TIMERS = {"default": Timers(5.0, 15, 2.5, 0.5), "fast": Timers(2.0, 6, 1.0, 0.25)}


def of_renewals(renew_every_s: float) -> Timers:
    """Return the set of a group whose members renew this often: the named ones are made like that too."""
    suspect_after_s, lease_s = 2 * renew_every_s, max(LEASE_S_MIN, ceil(6 * renew_every_s))
    return Timers(suspect_after_s, lease_s, renew_every_s, min(0.5, suspect_after_s / 8))


def fitting(suspect_after_s: float, lease_s: int) -> Timers:
    """Return the set with these two times, the others derived from them. ValueError when they do not fit together."""
    for named in TIMERS.values():
        if (named.suspect_after_s, named.lease_s) == (suspect_after_s, lease_s):
            return named
    return Timers(suspect_after_s, lease_s, min(lease_s / 3, suspect_after_s / 2), min(0.5, suspect_after_s / 8))
