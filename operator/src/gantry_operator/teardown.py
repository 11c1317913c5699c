"""Deleting a cluster with its volumes (`deletionPolicy: Delete`); with Retain the operator has nothing to do.

Steps, each decided by what still exists: the sets and the doors' Deployments, and with them the pods; when no pod is
left, the registers and the volume claims; then the finalizer.  Failover loops go on until no pod is left, and the
status names what the deletion waits for.  Every deletion names the uid that was seen.  When the whole namespace is
deleted, only the finalizer is left to remove.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gantry_operator.api.brokercluster import FINALIZER, LABEL_CLUSTER, LABEL_COMPONENT, BrokerCluster, Document
from gantry_operator.api.doorspec import DOORS
from gantry_operator.kube import cluster_path, lease_path

_DEPLOYMENTS, _SETS, _PODS, _CLAIMS = "deployments", "statefulsets", "pods", "persistentvolumeclaims"


class Clears(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


_NAMED_MAX = 5


async def clear(kube: Clears, cluster: BrokerCluster, found: Document) -> str:
    """Run one round; return what the deletion waits for, an empty text when nothing is left."""
    space = f"namespaces/{cluster.key.namespace}"
    labels = {LABEL_CLUSTER: cluster.key.name}
    await _delete(kube, f"/apis/apps/v1/{space}/{_SETS}", labels)
    if pods := await kube.listed(f"/api/v1/{space}/{_PODS}", labels):
        left = {each["metadata"]["labels"].get(LABEL_COMPONENT) for each in pods}
        for kind in (each for each in DOORS if each.component in left):
            await _delete_named(kube, f"/apis/apps/v1/{space}/{_DEPLOYMENTS}/{cluster.door(kind)}")
        return waits_for(pods)
    for group in cluster.groups():
        await _delete_named(kube, lease_path(cluster.key.namespace, group.name))
    if await _delete(kube, f"/api/v1/{space}/{_CLAIMS}", labels):
        return "it waits for its volume claims to go"
    await mark(kube, cluster, found, False)
    return ""


def waits_for(pods: Sequence[Document]) -> str:
    """Return a text that names the remaining pods with their nodes, and what to do about one that stays."""
    named = [f"{each['metadata']['name']}{_node(each)}" for each in pods]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    hint = (
        "a pod stays for as long as its node does not answer: bring the node back, or, if it is lost for good, kubectl "
        "taint nodes NODE node.kubernetes.io/out-of-service=:NoExecute"
    )
    return f"it waits for pods to end: {', '.join(sorted(named)[:_NAMED_MAX])}{more}; {hint}"


def _node(pod: Document) -> str:
    node = pod.get("spec", {}).get("nodeName", "")
    return f" on node {node}" if node else ""


async def _delete_named(kube: Clears, path: str) -> None:
    found = await kube.get(path)
    if found is not None and "deletionTimestamp" not in found["metadata"]:
        await kube.delete(path, found["metadata"]["uid"])


async def _delete(kube: Clears, folder: str, labels: Mapping[str, str]) -> bool:
    """Delete the objects of a folder with these labels; return whether there were any."""
    found = await kube.listed(folder, labels)
    for each in found:
        if "deletionTimestamp" not in each["metadata"]:
            await kube.delete(f"{folder}/{each['metadata']['name']}", each["metadata"]["uid"])
    return bool(found)


async def mark(kube: Clears, cluster: BrokerCluster, found: Document, is_wanted: bool) -> None:
    """Add or remove our finalizer on this version of the cluster; finalizers of others are kept."""
    about = found["metadata"]
    others = [each for each in about.get("finalizers", []) if each != FINALIZER]
    wanted = [*others, FINALIZER] if is_wanted else others
    change = {"metadata": {"finalizers": wanted, "resourceVersion": about["resourceVersion"]}}
    await kube.merge(cluster_path(cluster.key), change)
