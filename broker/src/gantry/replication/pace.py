"""When the in-sync set is changed: time limits that keep a slave with a bad link from joining and leaving often.

Whether a change is *safe* is decided in `insync`; this module is about time only.  Callers pass it in, as seconds on a
monotonic clock.

    join     caught up without interruption for 3 s, and fewer than 6 changes in the last minute; at once when the set
             is short, since writes are refused until then
    leave    no connection and no acknowledgement for `silence_s` (3 s), more than `max_lag_s` behind, or late for
             `late_s` (`lateness`); at once for a slave that announces that it stops
    again    a member that left because it was late has to be steady for twice as long each time, up to 5 minutes

A slave counts as caught up while it acknowledges what the log held a moment ago.  The caller decides that, and may call
caught_up() and behind() any number of times.

A group with a register guarantees that a master confirms within three times the time of suspicion, whatever single
fault lasts.  So every wait is a part of that time (`waits_of`).  A member does not know the time of suspicion; it knows
how often it renews, and two renewals are never longer than a suspicion (`failover.timers`).
    a link is silent        2 renewals      then the link ends, and the coordinator begins to suspect
    a member is silent      1.2 renewals    then it leaves the set, or writes are refused
    a slave does not store  4 renewals      then it leaves the set; 15 s at most
    a slave is late         2 renewals      then it leaves the set, if enough others are not
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gantry.replication.members import Member

STEADY_S = 3.0  # long enough to see a link flap, short beside the time that a restart takes
SILENCE_S = 3.0  # two lost heartbeats
BEAT_S = 1.0  # between two beats of a master
LINK_S, LINK_S_MIN = 5.0, 1.5  # the least: longer than a member with other timers takes from one beat to the next
MAX_LAG_S = 15.0
LATE_S = 5.0
_MINUTE_S = 60.0
_CHANGES_MAX = 6
_STEADY_S_MAX = 300.0
_FORGOTTEN_S = 900.0  # after so long in the set without lateness a member waits no longer than any other


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a group waits for a member, in seconds; the defaults are those of a static pair."""

    link_s: float = LINK_S  # a link without a received byte for so long ends
    silence_s: float = SILENCE_S  # a member without a connection for so long leaves the set
    max_lag_s: float = MAX_LAG_S  # a member that is behind for so long leaves the set
    late_s: float = LATE_S  # a member that adds up so much lateness leaves the set, if enough others remain
    slow_s: float = float("inf")  # an acknowledgement after so long is late; inf: producers do not wait for slaves


def waits_of(renew_every_s: float) -> Waits:
    """Return the waits of a group with a register that is renewed this often."""
    return Waits(
        link_s=max(LINK_S_MIN, min(LINK_S, 2 * renew_every_s)),
        silence_s=min(SILENCE_S, 1.2 * renew_every_s),
        max_lag_s=min(MAX_LAG_S, 4 * renew_every_s),
        late_s=min(LATE_S, 2 * renew_every_s),
    )


class Pace:
    """Recent changes of the set, and since when each slave has been caught up; one object for each `InSync`."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._steady_since: dict[Member, float] = {}
        self._changes: deque[float] = deque(maxlen=_CHANGES_MAX)
        self._left_late: dict[int, tuple[int, float]] = {}  # by ordinal: how often in a row, and when

    def caught_up(self, member: Member, now_s: float) -> None:
        """Note that the member has caught up."""
        self._steady_since.setdefault(member, now_s)

    def behind(self, member: Member) -> None:
        """Note that the member is behind, or not connected."""
        self._steady_since.pop(member, None)

    def left_late(self, member: Member, now_s: float) -> None:
        """Note that the member leaves because it makes acknowledgements late."""
        times, last_s = self._left_late.get(member.ordinal, (0, now_s))
        self._left_late[member.ordinal] = (times + 1 if now_s - last_s < _FORGOTTEN_S else 1), now_s

    def is_steady(self, member: Member) -> bool:
        """Return whether the member has caught up and is not behind since."""
        return member in self._steady_since

    def changed(self, now_s: float) -> None:
        """Note that the set was changed."""
        self._changes.append(now_s)

    def may_join(self, member: Member, now_s: float, has_enough: bool, quick_s: float = float("inf")) -> bool:
        """Return whether the member may be admitted now.

        has_enough: what is in the set can confirm; quick_s: for so long the member has acknowledged quickly.
        """
        since = self._steady_since.get(member)
        if since is None or not has_enough:
            return since is not None
        times, _ = self._left_late.get(member.ordinal, (0, 0.0))
        steady_s = min(_STEADY_S_MAX, STEADY_S * 2.0**times)
        is_restless = len(self._changes) == _CHANGES_MAX and now_s - self._changes[0] < _MINUTE_S
        return min(now_s - since, quick_s) >= steady_s and not is_restless

    def must_leave(self, silent_s: float, lag_s: float) -> bool:
        """Return whether a member of the set has to leave it; `silent_s` is 0 while its link works."""
        return silent_s >= self._waits.silence_s or lag_s > self._waits.max_lag_s
