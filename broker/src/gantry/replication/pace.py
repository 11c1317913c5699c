"""When a change of the in-sync set is worth making: what keeps a slave with a bad link from going in and out.

Whether a change is *safe* is for `insync`; here it is only about time, which callers pass in (seconds that never go
back).

    join     caught up without interruption for 3 s, and fewer than 6 changes in the last minute; at once when the set
             is short, since writes are refused until then
    leave    the connection gone and 3 s of silence, or more than `max_lag_s` behind; a slave that says goodbye is not
             waited for at all

A slave counts as caught up while it acknowledges what the log held a moment ago: who decides that calls caught_up() and
behind() as often as he likes.
"""

from __future__ import annotations

from collections import deque

from gantry.replication.members import Member

STEADY_S = 3.0  # long enough to see a link flap, short beside the time that a restart takes
SILENCE_S = 3.0  # two lost heartbeats
_MINUTE_S = 60.0
_CHANGES_MAX = 6


class Pace:
    """What happened lately; one object beside the `InSync` of a mastership."""

    def __init__(self, max_lag_s: float) -> None:
        self._max_lag_s = max_lag_s
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
        return silent_s >= SILENCE_S or lag_s > self._max_lag_s
