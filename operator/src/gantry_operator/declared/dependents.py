"""Which objects belong to a cluster, from events, and which of them an event concerns.

This only triggers passes; a pass itself reads the API server.  An event that changed only a status triggers none.  The
deletion of an object triggers passes of all objects with the same claim, because another one of them counts now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Claim, Declared, Kind
from gantry_operator.api.wishes import PAUSE
from gantry_operator.declared.claims import claim_of


class Mark(NamedTuple):
    """The parts of an object whose change triggers a pass."""

    claim: Claim
    generation: int
    is_going: bool
    is_paused: bool
    finalizers: tuple[str, ...]


class Dependents:
    """The marks of all known objects, and the generations of clusters."""

    def __init__(self) -> None:
        self._marks: dict[Declared, Mark] = {}
        self._generations: dict[Key, tuple[int, bool]] = {}

    def heard(self, kind: Kind, document: Mapping[str, Any], is_deleted: bool) -> list[Declared]:
        """Take an event of an object; return the objects that need a pass."""
        claim = claim_of(kind, document)
        former = self._marks.get(claim.key)
        if is_deleted:
            self._marks.pop(claim.key, None)
            same = [key for key, mark in self._marks.items() if _thing(mark.claim) == _thing(claim)]
            return [claim.key, *same]
        metadata = document["metadata"]
        mark = Mark(
            claim,
            int(metadata["generation"]),
            "deletionTimestamp" in metadata,
            metadata.get("annotations", {}).get(PAUSE) == "true",
            tuple(metadata.get("finalizers", ())),
        )
        self._marks[claim.key] = mark
        return [] if mark == former else [claim.key]

    def heard_of_cluster(self, key: Key, generation: int, is_deleted: bool) -> bool:
        """Take an event of a cluster; return whether its objects need a pass."""
        mark = generation, is_deleted
        if self._generations.get(key) == mark:
            return False
        self._generations[key] = mark
        if is_deleted:
            self._generations.pop(key, None)
        return True

    def cluster_of(self, key: Declared) -> Key | None:
        """Return the cluster of an object; None for an unknown object."""
        mark = self._marks.get(key)
        return None if mark is None else _cluster(mark.claim)

    def of(self, cluster: Key) -> list[Declared]:
        """Return all objects of a cluster."""
        return [key for key, mark in self._marks.items() if _cluster(mark.claim) == cluster]


def _cluster(claim: Claim) -> Key:
    return Key(claim.key.namespace, claim.cluster)


def _thing(claim: Claim) -> tuple[Kind, Key, str]:
    return claim.key.kind, _cluster(claim), claim.name
