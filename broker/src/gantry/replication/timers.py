"""The times of a group, each a part of one time: the period of a master's renewals.

A member knows only how often it renews (`replication.renew_every_s`).  Two renewals are at most one suspicion
(`failover.agreement` sees to it), so what lasts less than two renewals is over before another member is elected.

    a coordinator (`Timers`)
    suspect   without a good answer of the master and without a renewal for this long, the master is sealed
    lease     how long a master that acknowledges alone is waited for; alone in its set it serves for two thirds of it
    renew     how often the master renews: a third of the lease at most, and twice within the time of suspicion
    poll      how often the coordinator asks: the death of a master is noticed up to one poll later

    a master (`ServingWaits`)
    fresh     1.7 renewals   it serves after a renewal
    heard     1.2 renewals   it serves after its slaves answered a beat
    beat      a third of `heard`, 1 s at most
    again     a quarter      the register is read again after a renewal without an answer

    the in-sync set (`Waits`): a group with a register guarantees that a master confirms within three times the time of
    suspicion, whatever single fault lasts
    a link is silent        2 renewals      then the link ends, and the coordinator begins to suspect
    a member is silent      1.2 renewals    then it leaves the set, or writes are refused
    a slave does not store  4 renewals      then it leaves the set; 15 s at most
    a slave is late         2 renewals      then it leaves the set, if enough others are not
    a disk hangs            2 renewals      then its member refuses messages and does not renew

Which timer ends what is in broker/docs/failover.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

LEASE_S_MIN = 3
BEAT_S = 1.0  # between two beats of a master
LINK_S, LINK_S_MIN = 5.0, 1.5  # the least: longer than a member with other timers takes from one beat to the next
SILENCE_S = 3.0  # two lost heartbeats
MAX_LAG_S = 15.0
LATE_S = 5.0
FLUSH_S = 5.0  # RocketMQ's syncFlushTimeout, after which producers that wait for the disk get an answer
_SLOW_S_MIN = 0.25  # probes are looked at ten times a second


@dataclass(frozen=True, slots=True)
class Timers:
    """A coordinator's times, in seconds. The constructor raises ValueError for times that do not fit together."""

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


# `fast` is for one rack and for tests: there a pause of two seconds of the machine leads to a failover.
TIMERS = {"default": Timers(5.0, 15, 2.5, 0.5), "fast": Timers(2.0, 6, 1.0, 0.25)}


def derive_usual_timers(renew_every_s: float) -> Timers:
    """Return the set of a group whose members renew this often: the named ones are made like that too."""
    suspect_after_s, lease_s = 2 * renew_every_s, max(LEASE_S_MIN, ceil(6 * renew_every_s))
    return Timers(suspect_after_s, lease_s, renew_every_s, min(0.5, suspect_after_s / 8))


def derive_timers(suspect_after_s: float, lease_s: int) -> Timers:
    """Return the set with these two times, the others derived from them. ValueError when they do not fit together."""
    for named in TIMERS.values():
        if (named.suspect_after_s, named.lease_s) == (suspect_after_s, lease_s):
            return named
    return Timers(suspect_after_s, lease_s, min(lease_s / 3, suspect_after_s / 2), min(0.5, suspect_after_s / 8))


class ServingWaits(NamedTuple):
    """Times of a master in a group with a register, in seconds."""

    fresh_s: float
    heard_s: float
    beat_s: float
    again_s: float


def derive_serving_waits(renew_every_s: float) -> ServingWaits:
    """Return the times of a master that renews this often."""
    heard_s = 1.2 * renew_every_s
    return ServingWaits(1.7 * renew_every_s, heard_s, min(BEAT_S, heard_s / 3), renew_every_s / 4)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a group waits for a member, in seconds; the defaults are those of a static pair."""

    link_s: float = LINK_S  # a link without a received byte for so long ends
    silence_s: float = SILENCE_S  # a member without a connection for so long leaves the set
    max_lag_s: float = MAX_LAG_S  # a member that is behind for so long leaves the set
    late_s: float = LATE_S  # a member that adds up so much lateness leaves the set, if enough others remain
    slow_s: float = float("inf")  # an acknowledgement after so long is late; inf: producers do not wait for slaves
    flush_s: float = FLUSH_S  # a sync of the log that makes no progress for so long hangs


def derive_waits(renew_every_s: float) -> Waits:
    """Return the waits of a group with a register that is renewed this often."""
    return Waits(
        link_s=max(LINK_S_MIN, min(LINK_S, 2 * renew_every_s)),
        silence_s=min(SILENCE_S, 1.2 * renew_every_s),
        max_lag_s=min(MAX_LAG_S, 4 * renew_every_s),
        late_s=min(LATE_S, 2 * renew_every_s),
        flush_s=min(FLUSH_S, 2 * renew_every_s),
    )


def slow_after_s(ack_timeout_s: float) -> float:
    """Return after how long an acknowledgement is late for producers that are answered after `ack_timeout_s`."""
    return max(_SLOW_S_MIN, ack_timeout_s / 2)
