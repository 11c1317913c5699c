"""Looking: from what the API server and the members say now to a snapshot.  Reads only.

Members that do not answer, and volumes that nobody asks about, are left out; everything else is read live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_COMPONENT, BrokerCluster, Document, Group
from gantry_operator.kube import lease_path
from gantry_operator.snapshot import (
    Answer,
    GroupSeen,
    Pod,
    Snapshot,
    pod_seen,
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
    """Everything but what members say."""
    namespace = cluster.key.namespace
    found = await kube.listed(f"/api/v1/namespaces/{namespace}/pods", {LABEL_CLUSTER: cluster.key.name})
    pods = {each["metadata"]["name"]: pod_seen(each) for each in found}
    names = [each["metadata"]["name"] for each in found if _component(each) == "nameserver"]
    ready = sum(pods[name].is_ready for name in names)
    trouble = next((pods[name].trouble for name in sorted(names) if pods[name].trouble), "")
    groups = [await _group(kube, group, pods) for group in cluster.groups()]
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    missing = [name for name in cluster.image.secrets if await kube.get(f"{secrets}/{name}") is None]
    return Snapshot(cluster, groups, ready, trouble, missing)


async def answers(asks: Asks, snapshot: Snapshot, key: bytes, now_s: float) -> Snapshot:
    """With what members say, and who is not heard of."""
    found = await asyncio.gather(*(asks.look(group, key) for group in snapshot.groups))
    heard = [replace(group, answers=said) for group, said in zip(snapshot.groups, found, strict=True)]
    return replace(snapshot, groups=[replace(group, absent=group.lost(now_s)) for group in heard])


async def _group(kube: Reads, group: Group, pods: Mapping[str, Pod]) -> GroupSeen:
    namespace = group.cluster.key.namespace
    lease = await kube.get(lease_path(namespace, group.name))
    made = await kube.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{group.name}")
    every = [group.pod(ordinal) for ordinal in range(_ORDINALS_MAX)]
    here = {name: pods[name] for name in every if name in pods}
    claims: dict[int, str] = {}
    if group.cluster.drops_claims:
        for ordinal in range(group.cluster.brokers.replicas, _ORDINALS_MAX):
            claim = await kube.get(claim_path(group, ordinal))
            if claim is not None and "deletionTimestamp" not in claim["metadata"]:
                claims[ordinal] = claim["metadata"]["uid"]
    return GroupSeen(
        group, register_seen(lease), here, revision_seen(made), replicas_seen(made), roll_seen(made), claims=claims
    )


def claim_path(group: Group, ordinal: int) -> str:
    """Of a member's volume claim."""
    namespace = group.cluster.key.namespace
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{group.claim(ordinal)}"


def _component(document: Document) -> str:
    return str(document["metadata"].get("labels", {}).get(LABEL_COMPONENT, ""))
