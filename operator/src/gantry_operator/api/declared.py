"""What every kind has that declares something on brokers: whom it belongs to, how it may go, whether it is let alone.

A declared object names a cluster of its own namespace and a thing on its brokers; the thing's name is the object's own
unless another one is given, since brokers allow names that Kubernetes does not.  Both stay what they are: another name
would be another thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import GROUP, Key
from gantry_operator.api.wishes import PAUSE

FINALIZER = f"{GROUP}/delete-from-brokers"
MANAGED, OBSERVE = "Managed", "Observe"
RETAIN, DELETE = "Retain", "Delete"


class Kind(StrEnum):
    """By its plural."""

    TOPIC = "brokertopics"
    CONSUMER_GROUP = "consumergroups"


class Declared(NamedTuple):
    """Which object."""

    kind: Kind
    namespace: str
    name: str


class Claim(NamedTuple):
    """What an object speaks for; of two the older one is right, and of the same age the one with the smaller uid."""

    cluster: str
    name: str
    created: str
    uid: str
    key: Declared

    def is_older(self, other: Claim) -> bool:
        """Whether this one is right where both speak for one thing."""
        return (self.created, self.uid) < (other.created, other.uid)


@dataclass(frozen=True, slots=True)
class About:
    """What an object says of itself."""

    key: Declared
    cluster: str
    name: str  # of the topic or group on the brokers
    uid: str
    created: str
    version: str
    generation: int
    finalizers: tuple[str, ...]
    is_going: bool
    is_paused: bool
    is_observed: bool  # looked at, and never changed
    deletes: bool  # the thing goes with the object

    @property
    def cluster_key(self) -> Key:
        """Clusters of other namespaces cannot be named."""
        return Key(self.key.namespace, self.cluster)

    @property
    def is_held(self) -> bool:
        """Whether it waits for us before it goes."""
        return FINALIZER in self.finalizers

    @property
    def claim(self) -> Claim:
        """What it speaks for."""
        return Claim(self.cluster, self.name, self.created, self.uid, self.key)


def about(kind: Kind, document: Mapping[str, Any], name: str) -> About:
    """Of an object whose thing has this name, if it says one; KeyError or TypeError for what no server let in."""
    metadata, spec = document["metadata"], document["spec"]
    is_paused = metadata.get("annotations", {}).get(PAUSE) == "true"
    return About(
        key=Declared(kind, metadata["namespace"], metadata["name"]),
        cluster=spec["clusterRef"]["name"],
        name=name or metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        version=metadata["resourceVersion"],
        generation=int(metadata["generation"]),
        finalizers=tuple(metadata.get("finalizers", ())),
        is_going="deletionTimestamp" in metadata,
        is_paused=is_paused,
        is_observed=is_paused or spec["managementPolicy"] == OBSERVE,
        deletes=spec["deletionPolicy"] == DELETE and spec["managementPolicy"] == MANAGED,
    )
