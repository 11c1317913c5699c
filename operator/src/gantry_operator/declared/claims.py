"""Claims: of two objects that declare the same topic or group of a cluster, only the older one is applied.

The list is read from the API server, so it is complete from the first pass of an operator on.  Events update it, and it
is read again after `FRESH_S`: thousands of objects use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from gantry.clock import Clock
from gantry_operator.api.brokercluster import Document
from gantry_operator.api.declared import About, Claim, Declared, Kind
from gantry_operator.kube import declared_folder

FRESH_S = 10.0
_NAME_FIELDS = {Kind.TOPIC: "topicName", Kind.CONSUMER_GROUP: "groupName"}
_Place = tuple[Kind, str]


class ObjectLister(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...


class Claims:
    """The claims of all objects, by kind and namespace."""

    def __init__(self, kube: ObjectLister, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[_Place, tuple[float, dict[tuple[str, str], list[Claim]]]] = {}
        self._reading = asyncio.Lock()

    async def older(self, about: About) -> Claim | None:
        """Return the oldest other claim to the same topic or group that is older than this one; None without any."""
        claims = (await self._of(about.key.kind, about.key.namespace)).get((about.cluster, about.name), [])
        rivals = [each for each in claims if each.uid != about.uid and each.is_older(about.claim)]
        return min(rivals, key=lambda each: (each.created, each.uid), default=None)

    def heard(self, claim: Claim, is_deleted: bool) -> None:
        """Update the list that was read by the event of an object."""
        _, known = self._known.get((claim.key.kind, claim.key.namespace), (0.0, None))
        if known is None:
            return
        others = [each for each in known.get((claim.cluster, claim.name), []) if each.uid != claim.uid]
        known[claim.cluster, claim.name] = others if is_deleted else [*others, claim]

    async def _of(self, kind: Kind, namespace: str) -> dict[tuple[str, str], list[Claim]]:
        async with self._reading:
            at_s, known = self._known.get((kind, namespace), (0.0, None))
            if known is not None and self._clock.monotonic() - at_s < FRESH_S:
                return known
            found: dict[tuple[str, str], list[Claim]] = {}
            for document in await self._kube.listed(declared_folder(kind, namespace), {}):
                claim = claim_of(kind, document)
                found.setdefault((claim.cluster, claim.name), []).append(claim)
            self._known[kind, namespace] = self._clock.monotonic(), found
            return found


def claim_of(kind: Kind, document: Mapping[str, Document]) -> Claim:
    """Return which topic or group an object declares."""
    metadata, spec = document["metadata"], document["spec"]
    return Claim(
        cluster=spec["clusterRef"]["name"],
        name=spec[_NAME_FIELDS[kind]] or metadata["name"],
        created=metadata["creationTimestamp"],
        uid=metadata["uid"],
        key=Declared(kind, metadata["namespace"], metadata["name"]),
    )
