"""Labels, owners and names that every object of a cluster has."""

from __future__ import annotations

import hashlib
import json

from gantry_operator.api.brokercluster import (
    GROUP,
    KIND,
    LABEL_CLUSTER,
    LABEL_COMPONENT,
    LABEL_GROUP,
    VERSION,
    BrokerCluster,
    Document,
    Group,
)
from gantry_operator.api.doorspec import DoorKind

TERMS = f"{GROUP}/terms"  # the terms of a pod in its group (`api.terms`)
ROLLED = f"{GROUP}/rolled"  # the value of manual-rolling-update for which a pod was made
ASKED = f"{GROUP}/asked"  # what of people a set follows: the cluster's generation, and manual rolling updates
APPLIED = f"{GROUP}/applied"  # digest of what the operator last applied: an object that has it is not applied again


def asked(cluster: BrokerCluster, rolled: str) -> dict[str, str]:
    """Return the annotation of a set whose value changes with each change that a user made to what the set follows."""
    return {ASKED: "/".join([str(cluster.generation), *([rolled] if rolled else [])])}


def owned(cluster: BrokerCluster, document: Document, labels: dict[str, str]) -> Document:
    """Add namespace, labels and owner to an object: it is deleted with the cluster."""
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": cluster.key.name,
        "uid": cluster.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = document["metadata"] | {"namespace": cluster.key.namespace, "labels": labels, "ownerReferences": [owner]}
    return document | {"metadata": metadata}


def stamped(document: Document) -> Document:
    """Add the digest of the object's own content to its annotations."""
    annotations = document["metadata"].get("annotations", {}) | {APPLIED: digest_of(document)}
    return document | {"metadata": document["metadata"] | {"annotations": annotations}}


def digest_of(content: object) -> str:
    """Return a short digest, different for every other content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def of_nameservers(cluster: BrokerCluster) -> dict[str, str]:
    """Return the labels of name servers.  They must never change, since selectors use them."""
    return {LABEL_CLUSTER: cluster.key.name, LABEL_COMPONENT: "nameserver"}


def of_door(cluster: BrokerCluster, kind: DoorKind) -> dict[str, str]:
    """Return the labels of this kind of door.  They must never change, since selectors use them."""
    return {LABEL_CLUSTER: cluster.key.name, LABEL_COMPONENT: kind.component}


def of_group(group: Group) -> dict[str, str]:
    """Return the labels of a broker group.  They must never change, since selectors use them."""
    return {LABEL_CLUSTER: group.cluster.key.name, LABEL_COMPONENT: "broker", LABEL_GROUP: group.short}
