"""The doors of a cluster as values: gRPC proxies and servers of HTTP queues, and what both have in common; pure.

A door is a Deployment without state, with a Service, in front of the brokers.  There is one where its field is written
in the specification; the field has no default.  `replicas` is None where it is not given: then the number stands in the
Deployment, and a HorizontalPodAutoscaler or `kubectl scale` may change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

CLUSTER_IP, NODE_PORT, LOAD_BALANCER = "ClusterIP", "NodePort", "LoadBalancer"


class DoorKind(NamedTuple):
    """One kind of door: its names in objects, and its words in texts."""

    component: (
        str  # label of its pods; name of its field in spec and status, of its container; end of its objects' names
    )
    port_name: str
    port: int
    condition: str
    missing: str  # reason of Ready while none of its pods is ready
    words: str  # in texts, more than one of its pods
    callers: str  # who cannot connect then

    @property
    def field(self) -> str:
        """Return the path of its field."""
        return f"spec.{self.component}"


PROXY = DoorKind("proxy", "grpc", 8081, "ProxyReady", "NoProxy", "proxies", "clients that speak gRPC")
QUEUES = DoorKind(
    "queues", "queues", 9407, "QueuesReady", "NoQueues", "servers of HTTP queues", "clients of HTTP queues"
)
DOORS = (PROXY, QUEUES)


@dataclass(frozen=True, slots=True)
class Door:
    """The settings that every kind of door has."""

    kind: DoorKind
    replicas: int | None
    service_type: str
    service_annotations: Mapping[str, str]
    pod: Mapping[str, Any]
    resources: Mapping[str, Any]

    @property
    def is_exposed(self) -> bool:
        """Return whether clients outside of Kubernetes connect, too."""
        return self.service_type != CLUSTER_IP


@dataclass(frozen=True, slots=True)
class Proxy:
    """The settings of a cluster's proxies."""

    door: Door
    workers: int
    tls_secret: str  # empty: no certificate of the user


@dataclass(frozen=True, slots=True)
class Queues:
    """The settings of a cluster's servers of HTTP queues."""

    door: Door
    users_secret: str


def read_proxy(spec: Mapping[str, Any] | None) -> Proxy | None:
    """Read `spec.proxy` with its defaults filled in; KeyError when a field is missing."""
    return None if spec is None else Proxy(_door(PROXY, spec), int(spec["workers"]), spec["tls"]["secretName"])


def read_queues(spec: Mapping[str, Any] | None) -> Queues | None:
    """Read `spec.queues` with its defaults filled in; KeyError when a field is missing."""
    if spec is None:
        return None
    # Without a default: missing in an object of another definition, whose failover loops go on (`lenient`).
    return Queues(_door(QUEUES, spec), spec.get("users", {}).get("secretName", ""))


def _door(kind: DoorKind, spec: Mapping[str, Any]) -> Door:
    service = spec["service"]
    return Door(
        kind=kind,
        replicas=int(spec["replicas"]) if "replicas" in spec else None,
        service_type=service["type"],
        service_annotations=service["annotations"],
        pod=spec["podTemplate"],
        resources=spec["resources"],
    )
