"""What the rest of Kubernetes does with the operator's objects, in one step: sets have pods, groups have registers.

A set's pods are of its template as it was when they were made; one that was deleted goes, and comes again.  A group's
register names a master whose pod is there: somebody else leads after the pod of the one that led was deleted.
"""

from __future__ import annotations

import hashlib
import json

from gantry_operator.api.brokercluster import LABEL_COMPONENT
from testkit.kube.fakestore import Document, Store

PHASE, SET, STORES = "gantrymq.io/phase", "gantrymq.io/sync-set", "gantrymq.io/stores"


def settle(store: Store) -> None:
    """One turn of every controller."""
    for path, document in sorted(store.documents.items()):
        if document.get("kind") == "StatefulSet" and path in store.documents:
            _pods(store, path, store.get(path))


def _pods(store: Store, path: str, stateful_set: Document) -> None:
    about, spec = stateful_set["metadata"], stateful_set["spec"]
    revision = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:8]
    folder = f"/api/v1/namespaces/{about['namespace']}/pods"
    gone = [_pod(store, folder, about, spec, ordinal, revision) for ordinal in range(spec["replicas"])]
    for name in _beyond(store, folder, about["name"], spec["replicas"]):
        store.remove(f"{folder}/{name}")
    counts = {"replicas": spec["replicas"], "readyReplicas": spec["replicas"], "updatedReplicas": spec["replicas"]}
    seen = {"observedGeneration": about["generation"], "updateRevision": revision, "currentRevision": revision}
    store.put(path, stateful_set | {"status": seen | counts})
    if spec["template"]["metadata"]["labels"][LABEL_COMPONENT] == "broker":
        _register(store, about, spec["replicas"], [ordinal for ordinal, was in enumerate(gone) if was])


def _pod(store: Store, folder: str, about: Document, spec: Document, ordinal: int, revision: str) -> bool:
    """Whether it has just been replaced."""
    name = f"{about['name']}-{ordinal}"
    held = store.documents.get(f"{folder}/{name}")
    if held is not None and "deletionTimestamp" not in held["metadata"]:
        is_ours = spec.get("updateStrategy", {}).get("type") != "OnDelete"  # a set rolls its pods unless told not to
        if not is_ours or held["metadata"]["labels"]["controller-revision-hash"] == revision:
            return False
    store.remove(f"{folder}/{name}")
    labels = {"controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": name}
    metadata = {
        "name": name,
        "namespace": about["namespace"],
        "labels": spec["template"]["metadata"]["labels"] | labels,
        "annotations": spec["template"]["metadata"].get("annotations", {}),
        "ownerReferences": [{"uid": about["uid"], "kind": "StatefulSet", "name": about["name"], "controller": True}],
    }
    status = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": f"10.0.0.{ordinal + 1}", "phase": "Running"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec["template"]["spec"], "status": status}
    store.put(f"{folder}/{name}", pod)
    return held is not None


def _beyond(store: Store, folder: str, name: str, replicas: int) -> list[str]:
    found = [path.rsplit("/", 1)[-1] for path in store.documents if path.startswith(f"{folder}/{name}-")]
    ordinals = [each for each in found if each.removeprefix(f"{name}-").isdecimal()]
    return [each for each in ordinals if int(each.removeprefix(f"{name}-")) >= replicas]


def _register(store: Store, about: Document, members: int, gone: list[int]) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{about['namespace']}/leases/{about['name']}"
    held = store.documents.get(path)
    epoch, master = 1, 0
    if held is not None:
        epoch = held["spec"]["leaseTransitions"]
        master = int(held["spec"]["holderIdentity"].partition(".")[0])
        if master in gone:
            epoch, master = epoch + 1, (master + 1) % members
    metadata = {
        "name": about["name"],
        "namespace": about["namespace"],
        "labels": about["labels"],
        "annotations": {
            PHASE: "Active",
            SET: ",".join(f"{ordinal}.0" for ordinal in range(members)),
            STORES: ",".join(f"{ordinal}=disk{ordinal}:0" for ordinal in range(members)),
        },
    }
    spec = {"holderIdentity": f"{master}.0/p", "leaseTransitions": epoch, "renewTime": "2099-01-01T00:00:00.0Z"}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    store.put(path, kind | {"metadata": metadata, "spec": spec})
