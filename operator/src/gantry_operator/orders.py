"""Orders that members refused, and when each may be given again; pure.

A member may refuse new values of its configuration, a handover, or that its disk is forgotten.  The same order is given
again after `FIRST_S`, and each time it is refused once more after twice as long, up to `LATEST_S`.  Until then the plan
goes on without it.  What is kept is lost with the process without harm: the order is given once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry_operator.api.brokercluster import Key
from gantry_operator.snapshot import Denied, Order

FIRST_S, LATEST_S = 4.0, 60.0
_KEPT_S = 3 * LATEST_S  # after the last refusal; an order that is still wanted was given again by then


class _Refusal(NamedTuple):
    reason: str
    at_s: float
    pause_s: float


class Orders:
    """The refused orders of all clusters, by group."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Key, str], dict[Order, _Refusal]] = {}

    def given(self, key: Key, group: str, order: Order, refused: str, now_s: float) -> None:
        """Record an order that was given; `refused` is empty when the member carried it out."""
        known = self._refused.setdefault((key, group), {})
        former = known.pop(order, None)
        if refused:
            pause_s = FIRST_S if former is None else min(2 * former.pause_s, LATEST_S)
            known[order] = _Refusal(refused, now_s, pause_s)

    def denied(self, key: Key, group: str, now_s: float) -> Mapping[Order, Denied]:
        """Return the orders whose last attempt was refused; old ones that are no longer wanted are removed."""
        known = self._refused.get((key, group), {})
        kept = {order: each for order, each in known.items() if now_s - each.at_s < _KEPT_S}
        self._refused[key, group] = kept
        return {order: Denied(each.reason, now_s - each.at_s >= each.pause_s) for order, each in kept.items()}

    def due_s(self, key: Key, now_s: float) -> float:
        """Return in how many seconds the next refused order of a cluster may be given again; infinite without any."""
        known = [each for place, held in self._refused.items() if place[0] == key for each in held.values()]
        return min((max(0.0, each.at_s + each.pause_s - now_s) for each in known), default=float("inf"))

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._refused = {place: each for place, each in self._refused.items() if place[0] != key}
