"""Reading what the doors of a cluster need, and making the keys that sign their receipt handles.

    CLUSTER-proxy,       the Deployments, each read by name where its field is in the specification, or a Service from
    CLUSTER-queues       before
    CLUSTER-proxy-keys   field `keys`: one key a line, the newest first; of proxies and HTTP queues alike (`handlekeys`)
    the users' Secrets   `tls.crt` and `tls.key` of proxies, `users` of HTTP queues (`doorfiles`)

A Deployment is applied only when all of its files can be used, so running pods keep what they have.  A fault is told in
the status and stops nothing else, the other door neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gantry_operator.api.brokercluster import BrokerCluster, Document, Image, Key
from gantry_operator.api.doorspec import DOORS, Door, DoorKind
from gantry_operator.desired import doors as desired
from gantry_operator.desired import proxies, queues
from gantry_operator.desired.labels import digest_of
from gantry_operator.doorfiles import FileFault, user_files
from gantry_operator.doorseen import DoorFault, DoorSeen, door_seen
from gantry_operator.handlekeys import HandleKeys, SecretMaker
from gantry_operator.kube import KubeError, folder_in
from gantry_operator.refusals import Refusals


@dataclass(frozen=True, slots=True)
class DoorObjects:
    """What was found, by component; the Deployment of a door without `secrets` is not applied."""

    seen: dict[str, DoorSeen] = field(default_factory=dict)
    there: dict[str, Document] = field(default_factory=dict)  # the Deployments by path
    secrets: dict[str, str] = field(default_factory=dict)  # digest of the files that are read at a start


class Doors:
    """Reads the doors' objects of all clusters, and remembers their keys."""

    def __init__(self, kube: SecretMaker) -> None:
        self._kube = kube
        self._keys = HandleKeys(kube)

    async def look(self, cluster: BrokerCluster, there: Mapping[str, Document], refusals: Refusals) -> DoorObjects:
        """Read the objects; `there` are the owned objects by path.  Errors go to `refusals`."""
        found, wanted = DoorObjects(), {each.kind: each for each in cluster.doors}
        folder = folder_in("Service", cluster.key.namespace)
        services = {kind: there.get(f"{folder}/{cluster.door(kind)}") for kind in DOORS}
        owners = [service for kind in wanted if (service := services[kind]) is not None]
        for kind, service in services.items():
            door, path = wanted.get(kind), f"{folder_in('Deployment', cluster.key.namespace)}/{cluster.door(kind)}"
            if door is None and service is None:
                continue
            try:
                deployment = await self._kube.get(path)
                found.there.update({} if deployment is None else {path: deployment})
                if door is None:
                    continue
                used = await self._secrets(cluster, door, owners)
            except KubeError as error:
                refusals.add_apply(f"Deployment {cluster.door(kind)}", error)
                if door is not None:
                    found.seen[kind.component] = door_seen(cluster, door, None, service)
                continue
            seen = door_seen(cluster, door, deployment, service)
            found.seen[kind.component] = replace(seen, fault=used) if isinstance(used, DoorFault) else seen
            found.secrets[kind.component] = "" if isinstance(used, DoorFault) else used
        return found

    def wanted(self, cluster: BrokerCluster, image: Image, found: DoorObjects) -> list[list[Document]]:
        """Return the wanted objects, a batch for each door, without a Deployment that cannot be applied."""
        batches = []
        for door in cluster.doors:
            documents, digest = desired.objects(cluster, door), found.secrets.get(door.kind.component)
            if digest:
                shape = desired.DoorShape(found.seen[door.kind.component].replicas, digest)
                documents.append(desired.deployment(cluster, door, image, shape, own_part(cluster, door.kind)))
            batches.append(documents)
        return batches

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._keys.forget(key)

    async def _secrets(self, cluster: BrokerCluster, door: Door, owners: list[Document]) -> str | DoorFault:
        """Return the digest of a door's files, empty while there are no keys; a fault when one is not usable."""
        has_service = any(each["metadata"]["name"] == cluster.door(door.kind) for each in owners)
        keys = await self._keys.read(cluster, owners if has_service else [])
        files = await user_files(self._kube, cluster, door.kind)
        if isinstance(files, FileFault):
            return DoorFault(files.reason, files.message)
        if isinstance(keys, DoorFault):
            return keys
        return digest_of([keys, files]) if keys else ""


def own_part(cluster: BrokerCluster, kind: DoorKind) -> desired.DoorPod:
    """Return what the pods of one kind of door have for themselves."""
    if cluster.proxy is not None and kind is cluster.proxy.door.kind:
        return proxies.pod(cluster.proxy)
    assert cluster.queues is not None
    return queues.pod(cluster.queues)
