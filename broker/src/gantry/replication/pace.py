"""When the in-sync set is changed: time limits that keep a slave with a bad link from joining and leaving often.

Whether a change is *safe* is decided in `insync`; this module is about time only.  Callers pass it in, as seconds on a
monotonic clock.

    join     caught up without interruption for 3 s, and fewer than 6 changes in the last minute; at once when the set
             is short, since writes are refused until then
    leave    no connection and no acknowledgement for `silence_s` (3 s), more than `max_lag_s` behind, or late for
             `late_s` (`lateness`); at once for a slave that announces that it stops
    again    a member that left because it was late has to be steady for twice as long each time, up to 5 minutes

A slave counts as caught up while it acknowledges what the log held a moment ago.  The caller decides that, and may call
caught_up() and behind() any number of times.  How long the group waits for a member stands in `timers`.
"""

from __future__ import annotations

from collections import deque

from gantry.replication.members import Member
from gantry.replication.timers import Waits

STEADY_S = 3.0  # long enough to see a link flap, short beside the time that a restart takes
_MINUTE_S = 60.0
_CHANGES_MAX = 6
_STEADY_S_MAX = 300.0
_FORGOTTEN_S = 900.0  # after so long in the set without lateness a member waits no longer than any other


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
