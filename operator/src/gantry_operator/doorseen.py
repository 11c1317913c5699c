"""A door of a cluster as a value: what its Deployment and Service say, and what hinders a change; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import BrokerCluster
from gantry_operator.api.doorfields import REPLICAS
from gantry_operator.api.doorspec import LOAD_BALANCER, Door, DoorKind

_REASON_CHARS_MAX = 300


class DoorFault(NamedTuple):
    """Why the Deployment cannot be applied, or makes no pods: a condition's reason and message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DoorSeen:
    """One door that the specification has; its pods stand in the snapshot."""

    kind: DoorKind
    replicas: int  # wanted
    is_made: bool = False  # there is a Deployment
    is_rolling: bool = False  # not every pod is of its present template
    endpoint: str = ""  # for clients; empty: the load balancer has no address yet
    node_port: int = 0  # 0: the Service has none
    fault: DoorFault | None = None


def door_seen(
    cluster: BrokerCluster, door: Door, deployment: Mapping[str, Any] | None, service: Mapping[str, Any] | None
) -> DoorSeen:
    """Read both objects as they are."""
    found = REPLICAS if deployment is None else int(deployment["spec"].get("replicas", 1))
    return DoorSeen(
        door.kind,
        door.replicas if door.replicas is not None else max(1, found),
        deployment is not None,
        deployment is not None and _is_rolling(deployment),
        _endpoint(cluster, door, service),
        _node_port(service),
        _refused(door.kind, deployment),
    )


def _is_rolling(deployment: Mapping[str, Any]) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    is_known = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return not is_known or status.get("updatedReplicas", 0) < wanted or status.get("replicas", 0) > wanted


def _endpoint(cluster: BrokerCluster, door: Door, service: Mapping[str, Any] | None) -> str:
    port = door.kind.port
    if door.service_type != LOAD_BALANCER:
        return f"{cluster.door(door.kind)}.{cluster.key.namespace}:{port}"
    balancer = {} if service is None else service.get("status", {}).get("loadBalancer", {})
    addresses = [each.get("hostname") or each.get("ip") or "" for each in balancer.get("ingress", ())]
    return next((f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in addresses if each), "")


def _node_port(service: Mapping[str, Any] | None) -> int:
    ports = [] if service is None else service.get("spec", {}).get("ports", [])
    return next((int(each["nodePort"]) for each in ports if each.get("nodePort")), 0)


def _refused(kind: DoorKind, deployment: Mapping[str, Any] | None) -> DoorFault | None:
    """Return why the API server takes no pods of the Deployment, such as a quota."""
    conditions = [] if deployment is None else deployment.get("status", {}).get("conditions", [])
    for each in conditions:
        if each["type"] == "ReplicaFailure" and each["status"] == "True":
            said = str(each.get("message", ""))[:_REASON_CHARS_MAX]
            return DoorFault("PodsRefused", f"{kind.field}: the API server refuses pods of its Deployment: {said}")
    return None
