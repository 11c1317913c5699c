"""What BrokerTopics and ConsumerGroups have in common: their cluster, deletion policy and management policy.

A declared object names a cluster of its own namespace and a topic or group on its brokers.  The name on the brokers is
the object's own unless another one is given, since brokers allow names that Kubernetes does not.  Neither name can be
changed: another name would be another topic or group.
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
    """The declared kinds, by the plural that is used in paths."""

    TOPIC = "brokertopics"
    CONSUMER_GROUP = "consumergroups"


class Declared(NamedTuple):
    """Kind, namespace and name of an object."""

    kind: Kind
    namespace: str
    name: str


class Claim(NamedTuple):
    """Which topic or group an object declares.  Of two objects the older one counts; at equal age, the smaller uid."""

    cluster: str
    name: str
    created: str
    uid: str
    key: Declared

    def is_older(self, other: Claim) -> bool:
        """Return whether this object counts where both declare the same."""
        return (self.created, self.uid) < (other.created, other.uid)


@dataclass(frozen=True, slots=True)
class About:
    """The fields that all declared objects have."""

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
    is_observed: bool  # read only, never changed
    deletes: bool  # the topic or group is deleted with the object

    @property
    def cluster_key(self) -> Key:
        """Return the key of the cluster, which is always in the object's own namespace."""
        return Key(self.key.namespace, self.cluster)

    @property
    def is_held(self) -> bool:
        """Return whether the object has our finalizer."""
        return FINALIZER in self.finalizers

    @property
    def claim(self) -> Claim:
        """Return which topic or group the object declares."""
        return Claim(self.cluster, self.name, self.created, self.uid, self.key)


def about(kind: Kind, document: Mapping[str, Any], name: str) -> About:
    """Read the common fields; `name` on the brokers if one is given.  KeyError or TypeError for an invalid object."""
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
