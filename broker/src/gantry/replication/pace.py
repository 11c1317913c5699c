"""When a change of the in-sync set is worth making: what keeps a slave with a bad link from going in and out.

Whether a change is *safe* is for `insync`; here it is only about time, which callers pass in (seconds that never go
back).

    join     caught up without interruption for 3 s, and fewer than 6 changes in the last minute; at once when the set
             is short, since writes are refused until then
    leave    the connection gone and `silence_s` (3 s) without a word, or more than `max_lag_s` behind; a slave that
             says goodbye is not waited for at all

A slave counts as caught up while it acknowledges what the log held a moment ago: who decides that calls caught_up() and
behind() as often as he likes.

A group with a register promises a master that confirms within three times the suspicion, whatever fault stands.  So
every wait on the way there is a part of that time (`waits_of`).  A member does not know the time of suspicion; it
knows how often it renews, and two renewals are never longer than a suspicion (`failover.timers`).

    a link is silent        2 renewals      then its slave follows nobody, and the coordinator begins to suspect
    a member is silent      1.2 renewals    then it leaves the set, or writes are refused
    a slave does not store  4 renewals      then it leaves the set; 15 s at most
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gantry.replication.members import Member

STEADY_S = 3.0  # long enough to see a link flap, short beside the time that a restart takes
SILENCE_S = 3.0  # two lost heartbeats
LINK_S, LINK_S_MIN = 5.0, 1.5  # the least: longer than a member with other timers takes from one beat to the next
MAX_LAG_S = 15.0
_MINUTE_S = 60.0
_CHANGES_MAX = 6


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a group waits for a member, in seconds; the defaults are those of a static pair."""

    link_s: float = LINK_S  # without a byte, then the link ends
    silence_s: float = SILENCE_S  # without a connection, then the member leaves the set
    max_lag_s: float = MAX_LAG_S  # behind, then the member leaves the set


def waits_of(renew_every_s: float) -> Waits:
    """Return the waits of a group with a register that is renewed this often."""
    return Waits(
        link_s=max(LINK_S_MIN, min(LINK_S, 2 * renew_every_s)),
        silence_s=min(SILENCE_S, 1.2 * renew_every_s),
        max_lag_s=min(MAX_LAG_S, 4 * renew_every_s),
    )


class Pace:
    """What happened lately; one object beside the `InSync` of a mastership."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._steady_since: dict[Member, float] = {}
        self._changes: deque[float] = deque(maxlen=_CHANGES_MAX)

    def caught_up(self, member: Member, now_s: float) -> None:
        """The member is as good as equal."""
        self._steady_since.setdefault(member, now_s)

    def behind(self, member: Member) -> None:
        """The member is not, or not there at all."""
        self._steady_since.pop(member, None)

    def changed(self, now_s: float) -> None:
        """The set was changed."""
        self._changes.append(now_s)

    def may_join(self, member: Member, now_s: float, has_enough: bool) -> bool:
        """Whether the member may be admitted now; `has_enough` is `InSync.has_enough`."""
        since = self._steady_since.get(member)
        if since is None or not has_enough:
            return since is not None
        is_restless = len(self._changes) == _CHANGES_MAX and now_s - self._changes[0] < _MINUTE_S
        return now_s - since >= STEADY_S and not is_restless

    def must_leave(self, silent_s: float, lag_s: float) -> bool:
        """Whether a member of the set is to be left out; `silent_s` is 0 while its link works."""
        return silent_s >= self._waits.silence_s or lag_s > self._waits.max_lag_s
