"""Which BrokerTopics and ConsumerGroups need a pass after an event: of one of them, of its cluster, or of a broker
group that has another master.

Decisions of a failover loop come in quick succession.  All objects of the cluster get one pass, when there was no
decision for `DECIDED_S`, or with the next decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.declared.claims import Claims, claim_of
from gantry_operator.declared.dependents import Dependents
from gantry_operator.declared.territory import Territories

DECIDED_S = 1.0


class Waking:
    """Turns events into keys of the worklist, by calling `add`."""

    def __init__(
        self, territories: Territories, claims: Claims, add: Callable[[Declared, float], None]
    ) -> None:  # fmt: skip
        self._dependents = Dependents()
        self._territories = territories
        self._claims = claims
        self._add = add

    def heard(self, kind: Kind, document: Mapping[str, Any], is_deleted: bool) -> None:
        """Take an event of an object."""
        self._claims.heard(claim_of(kind, document), is_deleted)
        for key in self._dependents.heard(kind, document, is_deleted):
            self._add(key, 0.0)

    def heard_of_cluster(self, key: Key, generation: int, is_deleted: bool) -> None:
        """Take an event of a cluster."""
        if self._dependents.heard_of_cluster(key, generation, is_deleted):
            self.decided(key)

    def cluster_of(self, key: Declared) -> Key | None:
        """Return the cluster of an object; None for an unknown object."""
        return self._dependents.cluster_of(key)

    def decided(self, key: Key) -> None:
        """Take a decision of a failover loop of this cluster, or a change of its groups."""
        self._territories.forget(key)
        for each in self._dependents.of(key):
            self._add(each, DECIDED_S)
