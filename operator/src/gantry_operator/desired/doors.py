"""The doors of a cluster, gRPC proxies and servers of HTTP queues: Deployment, Service, PodDisruptionBudget; pure.

A door keeps no state and has no rights.  All pods of all doors sign receipt handles with the same keys, so a message
that one of them delivered may be acknowledged at any other one of its kind.  The digest of the files that are read only
at a start is in the template, so a change of them replaces the pods.

A rolling update has replicas - 1 pods ready at any time, and one of one.  A pod that is told to end finishes what it
has begun (`DRAIN_S`); before that it goes on for `UNLISTED_S`, in which the Service stops leading to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gantry_operator.api.brokercluster import GROUP, BrokerCluster, Document, Image
from gantry_operator.api.doorspec import PROXY, Door
from gantry_operator.desired.labels import ROLLED, asked, of_door, owned
from gantry_operator.desired.pods import HTTP_PORT, apart, container, ready, template

DRAIN_S, UNLISTED_S, END_S = 30, 5, 10  # calls under way (a door gives them 3 s); the Service; the rest of the end
KEYS = "keys"  # field of the Secret
SECRETS = f"{GROUP}/secrets"  # annotation of pods: digest of the files that are read at a start
FOLDER, KEY_FILE = "/etc/gantrymq/secret", "handle-keys"
_PRIVATE = 0o440


class DoorShape(NamedTuple):
    """The parts of the Deployment that depend on the present state, not only on the specification."""

    replicas: int
    secrets: str  # digest of the files that are read at a start


class DoorPod(NamedTuple):
    """The parts of a pod that one kind of door has."""

    options: Mapping[str, str]  # of `gantry KIND`, beside addresses, ports and keys
    files: Mapping[str, Sequence[str]]  # fields of the user's Secrets, which become files of the same names in `FOLDER`
    scratch: str = ""  # a folder that it may write to; empty: none


def objects(cluster: BrokerCluster, door: Door) -> list[Document]:
    """Return the objects of a door but for the Deployment (`deployment`) and the Secret with the keys."""
    labels, name, kind = of_door(cluster, door.kind), cluster.door(door.kind), door.kind
    ports = [{"name": kind.port_name, "port": kind.port}]
    service: Document = {"type": door.service_type, "selector": labels, "ports": ports}
    about = {"name": name, "annotations": dict(door.service_annotations)}
    budget = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",  # one that is not ready serves nobody
        "selector": {"matchLabels": labels},
    }
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": service},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": budget},
    ]
    return [owned(cluster, each, labels) for each in documents]


def deployment(cluster: BrokerCluster, door: Door, image: Image, shape: DoorShape, own: DoorPod) -> Document:
    """Return the Deployment."""
    labels, rolled = of_door(cluster, door.kind), cluster.wishes.roll
    requested = "/".join(filter(None, [rolled, shape.secrets]))
    annotations = {SECRETS: shape.secrets} | ({ROLLED: rolled} if rolled else {})
    spec = {
        "replicas": shape.replicas,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": min(1, shape.replicas - 1), "maxSurge": 1},
        },
        "selector": {"matchLabels": labels},
        "template": template(labels, annotations, door.pod, image, _pod(cluster, door, image, own)),
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": cluster.door(door.kind), "annotations": asked(cluster, requested)},
        "spec": spec,
    }
    return owned(cluster, document, labels)


def secret(cluster: BrokerCluster, owners: Sequence[Document], keys: str) -> Document:
    """Return the Secret with the keys, `keys` in base64; it belongs to `owners`, Services of doors.

    The operator may not delete Secrets.  Kubernetes deletes this one with the last of these Services.
    """
    document = owned(cluster, {"metadata": {"name": cluster.handle_secret}}, of_door(cluster, PROXY))
    metadata = document["metadata"] | {"ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {KEYS: keys}}


def _pod(cluster: BrokerCluster, door: Door, image: Image, own: DoorPod) -> Document:
    kind = door.kind
    options = {
        "namesrv": ";".join(cluster.nameserver_addresses),
        f"{kind.port_name}-port": str(kind.port),
        "http-port": str(HTTP_PORT),
        "handle-key-file": f"{FOLDER}/{KEY_FILE}",
        **own.options,
    }
    words = [kind.component, *(word for name, value in options.items() for word in (f"--{name}", value))]
    server = container(kind.component, image, words, {kind.port_name: kind.port, "http": HTTP_PORT}, door.resources)
    scratch = [{"name": "tmp", "mountPath": own.scratch}] if own.scratch else []
    server |= {
        "readinessProbe": ready("/readyz"),
        "lifecycle": {"preStop": {"sleep": {"seconds": UNLISTED_S}}},
        "volumeMounts": [{"name": "secret", "mountPath": FOLDER, "readOnly": True}, *scratch],
    }
    sources: list[Document] = [{"name": cluster.handle_secret, "items": [{"key": KEYS, "path": KEY_FILE}]}]
    sources += [
        {"name": name, "items": [{"key": each, "path": each} for each in fields]} for name, fields in own.files.items()
    ]
    projected = {"sources": [{"secret": each} for each in sources], "defaultMode": _PRIVATE}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": UNLISTED_S + DRAIN_S + END_S,
        "affinity": apart(of_door(cluster, kind), "Preferred"),
        "containers": [server],
        "volumes": [
            {"name": "secret", "projected": projected},
            *([{"name": "tmp", "emptyDir": {}}] if own.scratch else []),
        ],
    }
