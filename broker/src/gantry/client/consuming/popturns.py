"""The order in which a simple consumer asks its places: each topic on each broker has its turn.

Each round begins one place further.  A place that failed is left out for a moment if there is another one, and for
longer than its failure took: a broker that never answers would else take its whole time-out in nearly every round.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription

SHUN_S = 2.0
_SHUN_FACTOR = 2.0  # a silent broker takes a third of the time, and is asked again soon after its group has a master
ABSENT_S = 20.0  # how often a retry topic is looked for that does not exist yet
Place = tuple[MessageQueue, Subscription]


class PopTurns:
    """Whose turn it is; times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._next = 0
        self._shunned: dict[MessageQueue, float] = {}  # places that failed, until this time
        self._absent: dict[str, float] = {}  # topics that do not exist, until they are looked for again

    def order(self, places: Sequence[Place], now_s: float) -> list[Place]:
        """Return the places to ask in this round, in their order."""
        self._shunned = {target: until for target, until in self._shunned.items() if until > now_s}
        asked = [place for place in places if place[0] not in self._shunned] or list(places)
        first, self._next = self._next % max(1, len(asked)), self._next + 1
        return asked[first:] + asked[:first]

    def failed(self, target: MessageQueue, asked_s: float, now_s: float) -> None:
        """Note that a place that was asked at this time did not answer, or refused."""
        self._shunned[target] = now_s + max(SHUN_S, _SHUN_FACTOR * (now_s - asked_s))

    def is_absent(self, topic: str, now_s: float) -> bool:
        """Return whether a topic did not exist a moment ago."""
        return self._absent.get(topic, now_s) > now_s

    def absent(self, topic: str, now_s: float) -> None:
        """Note that a topic does not exist."""
        self._absent[topic] = now_s + ABSENT_S
