"""Looking: from what the API server and the members say now to a snapshot.  Reads only.

Each kind is listed once, by the cluster's label, whatever the number of groups.  Members that do not answer, and
volumes that no policy asks about, are left out; everything else is read live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from gantry_operator import volumes
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_COMPONENT, BrokerCluster, Document, Group
from gantry_operator.kube import folder_in, typed
from gantry_operator.podseen import Pod, pod_seen
from gantry_operator.snapshot import (
    Answer,
    GroupSeen,
    Snapshot,
    register_seen,
    replicas_seen,
    revision_seen,
    roll_seen,
)

_ORDINALS_MAX = 5


class Reads(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...


class Asks(Protocol):
    """Members, as `members.Members` asks them."""

    async def look(self, seen: GroupSeen, key: bytes) -> Mapping[int, Answer]: ...
    async def order(self, seen: GroupSeen, key: bytes, ordinal: int, path: str, **more: Any) -> str: ...


async def look(kube: Reads, cluster: BrokerCluster) -> Snapshot:
    """Everything but what members say: one list of each kind, and pull secrets by name."""
    namespace, labels = cluster.key.namespace, {LABEL_CLUSTER: cluster.key.name}

    async def every(kind: str) -> dict[str, Document]:
        found = await kube.listed(folder_in(kind, namespace), labels)
        return {each["metadata"]["name"]: typed(kind, each) for each in found}

    async def missing(name: str) -> bool:
        return await kube.get(f"{folder_in('Secret', namespace)}/{name}") is None

    lists = await asyncio.gather(*map(every, ["Pod", "StatefulSet", "Lease", "PersistentVolumeClaim"]))
    absent = await asyncio.gather(*map(missing, cluster.image.secrets))
    pods, sets, leases, claims = lists
    dropped = claims if cluster.drops_claims else {}
    things = Things({name: pod_seen(each) for name, each in pods.items()}, sets, leases, dropped)
    nameservers = [things.pods[name] for name, each in sorted(pods.items()) if _component(each) == "nameserver"]
    groups = [_group(group, things) for group in cluster.groups()]
    without = [name for name, is_missing in zip(cluster.image.secrets, absent, strict=True) if is_missing]
    return Snapshot(cluster, groups, nameservers, without, sets, volumes=volumes.differing(cluster, claims))


def with_sets(snapshot: Snapshot, applied: Iterable[Document]) -> Snapshot:
    """The same after these objects were applied: of sets, what the API server answered."""
    sets = {each["metadata"]["name"]: each for each in applied if each["kind"] == "StatefulSet"}
    groups = [
        replace(seen, **_of_set(sets[seen.group.name])) if seen.group.name in sets else seen
        for seen in snapshot.groups
    ]
    return replace(snapshot, groups=groups, sets={**snapshot.sets, **sets})


async def answers(asks: Asks, snapshot: Snapshot, key: bytes, now_s: float) -> Snapshot:
    """With what members say, and who is not heard of."""
    found = await asyncio.gather(*(asks.look(group, key) for group in snapshot.groups))
    heard = [replace(group, answers=said) for group, said in zip(snapshot.groups, found, strict=True)]
    return replace(snapshot, groups=[replace(group, absent=group.lost(now_s)) for group in heard])


class Things(NamedTuple):
    """What was listed, by name."""

    pods: Mapping[str, Pod]
    sets: Mapping[str, Document]
    leases: Mapping[str, Document]
    claims: Mapping[str, Document]


def _group(group: Group, things: Things) -> GroupSeen:
    every = [group.pod(ordinal) for ordinal in range(_ORDINALS_MAX)]
    here = {name: things.pods[name] for name in every if name in things.pods}
    beyond = {group.claim(ordinal): ordinal for ordinal in range(group.cluster.brokers.replicas, _ORDINALS_MAX)}
    claims = {
        ordinal: str(claim["metadata"]["uid"])
        for name, ordinal in beyond.items()
        if (claim := things.claims.get(name)) is not None and "deletionTimestamp" not in claim["metadata"]
    }
    register = register_seen(things.leases.get(group.name))
    return GroupSeen(group, register, here, claims=claims, **_of_set(things.sets.get(group.name)))


def _of_set(made: Document | None) -> dict[str, Any]:
    return {"revision": revision_seen(made), "replicas": replicas_seen(made), "set_roll": roll_seen(made)}


def claim_path(group: Group, ordinal: int) -> str:
    """Of a member's volume claim."""
    return f"{folder_in('PersistentVolumeClaim', group.cluster.key.namespace)}/{group.claim(ordinal)}"


def _component(document: Document) -> str:
    return str(document["metadata"].get("labels", {}).get(LABEL_COMPONENT, ""))
