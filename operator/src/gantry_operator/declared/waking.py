"""Who is to be looked at, of BrokerTopics and ConsumerGroups, when something is heard: of one of them, of its cluster,
or of a group of brokers that has another master.

A decision of a failover loop is followed by others within moments; all objects of the cluster come once, when it has
been quiet for `DECIDED_S`, or with the next decision.
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
    """From what is heard to keys in the worklist, to which `add` leads."""

    def __init__(
        self, territories: Territories, claims: Claims, add: Callable[[Declared, float], None]
    ) -> None:  # fmt: skip
        self._dependents = Dependents()
        self._territories = territories
        self._claims = claims
        self._add = add

    def heard(self, kind: Kind, document: Mapping[str, Any], is_deleted: bool) -> None:
        """An event of an object."""
        self._claims.heard(claim_of(kind, document), is_deleted)
        for key in self._dependents.heard(kind, document, is_deleted):
            self._add(key, 0.0)

    def heard_of_cluster(self, key: Key, generation: int, is_deleted: bool) -> None:
        """An event of a cluster."""
        if self._dependents.heard_of_cluster(key, generation, is_deleted):
            self.decided(key)

    def cluster_of(self, key: Declared) -> Key | None:
        """Whose it is, as far as heard."""
        return self._dependents.cluster_of(key)

    def decided(self, key: Key) -> None:
        """Something about who leads in a cluster is decided, or about what it consists of."""
        self._territories.forget(key)
        for each in self._dependents.of(key):
            self._add(each, DECIDED_S)
