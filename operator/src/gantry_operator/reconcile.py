"""One pass over one cluster: what should be there is put there, what is there is told.

Every pass begins with what the API server says now and keeps nothing for the next one, so it may be repeated, missed or
broken off anywhere.  An object whose digest is the one that was last applied is not applied again: an unchanged cluster
costs reads only.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from gantry.clock import Clock
from gantry_operator import plan, status
from gantry_operator.api import brokercluster
from gantry_operator.api.brokercluster import (
    LABEL_CLUSTER,
    LABEL_COMPONENT,
    LABEL_ROLE,
    BrokerCluster,
    Document,
    Group,
    Key,
)
from gantry_operator.desired import brokers, nameservers
from gantry_operator.desired.labels import APPLIED, owned, stamped
from gantry_operator.kube import KubeError, cluster_path, lease_path, path_of
from gantry_operator.settings import Settings
from gantry_operator.snapshot import GroupSeen, Pod, Snapshot, pod_seen, register_seen, revision_seen

SOON_S, LATER_S = 2.0, 60.0
SECRET_BYTES = 32
_KEY = "key"


class Objects(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def create(self, document: Document) -> bool: ...
    async def apply(self, document: Document) -> None: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete_pod(self, path: str, uid: str) -> None: ...


class Groups(Protocol):
    """The failover loops, as `watching.Watches` keeps them."""

    def keep(self, cluster: BrokerCluster, key: bytes) -> None: ...
    def forget(self, key: Key) -> None: ...


class Reconciler:
    """`once(key)`; answers when it wants to look again."""

    def __init__(self, kube: Objects, settings: Settings, watches: Groups, clock: Clock) -> None:
        self._kube = kube
        self._settings = settings
        self._watches = watches
        self._clock = clock

    async def once(self, key: Key) -> float | None:
        """None: there is no such cluster any more."""
        found = await self._kube.get(cluster_path(key))
        if found is None:
            self._watches.forget(key)
            return None
        cluster = brokercluster.read(found)
        if cluster.is_going:
            return LATER_S
        image = cluster.image or self._settings.broker_image
        try:
            secret = await self._secret(cluster)
            self._watches.keep(cluster, secret)
            await self._put(cluster, image)
        except KubeError as error:
            if error.status not in (400, 403, 404, 422):
                raise
            said = f"{error}; the API server refuses what this cluster needs"
            await self._tell(cluster, status.stalled(cluster.status, cluster.generation, "Refused", said, self._now()))
            return LATER_S
        snapshot = await self._look(cluster)
        await self._label(snapshot)
        step = plan.roll(snapshot)
        told = status.status_of(snapshot, image, self._now(), step)
        await self._tell(cluster, told)
        if isinstance(step, plan.Replace):
            await self._kube.delete_pod(f"/api/v1/namespaces/{key.namespace}/pods/{step.pod.name}", step.pod.uid)
        return LATER_S if status.is_settled(told) else SOON_S

    async def _secret(self, cluster: BrokerCluster) -> bytes:
        """What the members prove to each other; made once, and whoever made it first is right."""
        wanted: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": cluster.secret},
            "type": "Opaque",
            "data": {_KEY: base64.b64encode(secrets.token_hex(SECRET_BYTES).encode()).decode()},
        }
        document = owned(cluster, wanted, {LABEL_CLUSTER: cluster.key.name})
        found = await self._kube.get(path_of(document))
        if found is None:
            await self._kube.create(document)
            found = await self._kube.get(path_of(document))
        if found is None or _KEY not in found.get("data", {}):
            raise KubeError(f"Secret {cluster.secret}", 422, f"it has no {_KEY!r}; delete it, and it is made anew")
        return base64.b64decode(found["data"][_KEY])

    async def _put(self, cluster: BrokerCluster, image: str) -> None:
        documents = [each for group in cluster.groups() for each in brokers.objects(group, image)]
        for document in [*nameservers.objects(cluster, image), *documents]:
            wanted = stamped(document)
            there = await self._kube.get(path_of(wanted))
            if there is None or there["metadata"].get("annotations", {}).get(APPLIED) != _digest(wanted):
                await self._kube.apply(wanted)

    async def _look(self, cluster: BrokerCluster) -> Snapshot:
        folder = f"/api/v1/namespaces/{cluster.key.namespace}/pods"
        found = await self._kube.listed(folder, {LABEL_CLUSTER: cluster.key.name})
        pods = {each["metadata"]["name"]: pod_seen(each) for each in found}
        names = {each["metadata"]["name"] for each in found if _component(each) == "nameserver"}
        ready = sum(pods[name].is_ready for name in names)
        return Snapshot(cluster, [await self._group(group, pods) for group in cluster.groups()], ready)

    async def _group(self, group: Group, pods: dict[str, Pod]) -> GroupSeen:
        namespace = group.cluster.key.namespace
        lease = await self._kube.get(lease_path(namespace, group.name))
        made = await self._kube.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{group.name}")
        here = {name: pods[name] for name in group.pods if name in pods}
        return GroupSeen(group, register_seen(lease), here, revision_seen(made))

    async def _label(self, snapshot: Snapshot) -> None:
        """Who leads, for people and for `kubectl get pods -L`; nothing is decided by it."""
        folder = f"/api/v1/namespaces/{snapshot.cluster.key.namespace}/pods"
        for group in snapshot.groups:
            for pod, role in group.roles().items():
                if group.pods[pod].role != role:
                    await self._kube.merge(f"{folder}/{pod}", {"metadata": {"labels": {LABEL_ROLE: role}}})

    async def _tell(self, cluster: BrokerCluster, told: Document) -> None:
        without = {key: value for key, value in told.items() if value is not None}
        if without != cluster.status:
            await self._kube.merge(f"{cluster_path(cluster.key)}/status", {"status": told})

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(document: Document) -> str:
    return str(document["metadata"]["annotations"][APPLIED])


def _component(document: Document) -> str:
    return str(document["metadata"].get("labels", {}).get(LABEL_COMPONENT, ""))
