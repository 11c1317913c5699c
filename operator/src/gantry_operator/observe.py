"""Making a snapshot of a cluster from the present answers of the API server and the members.  Reads only.

Each kind is listed once, by the cluster's label, whatever the number of groups.  When a list fails, its kind is in
`unseen`; the other lists are used.  Members that do not answer, and volumes that no policy needs, are left out;
everything else is read live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from gantry_operator import volumes
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_COMPONENT, BrokerCluster, Document, Group, Key
from gantry_operator.api.doorspec import DOORS
from gantry_operator.kube import KubeError, folder_in, lease_path, typed
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

KINDS = ("Pod", "StatefulSet", "Lease", "PersistentVolumeClaim")
LIST_S = 8.0  # for one list; a pass has 30 s
_ORDINALS_MAX = 5


class Reads(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...


class Asks(Protocol):
    """The part of `members.Members` that is used here."""

    async def look(self, seen: GroupSeen, key: bytes) -> Mapping[int, Answer]: ...
    async def order(self, seen: GroupSeen, key: bytes, ordinal: int, path: str, **more: Any) -> str: ...


class Listing(NamedTuple):
    """The objects with the cluster's label, by kind and name; and which lists failed, and why."""

    documents: Mapping[str, Mapping[str, Document]]
    failed: Mapping[str, KubeError]

    def of(self, kind: str) -> Mapping[str, Document]:
        """Return objects of one kind by name; none where the list failed."""
        return self.documents.get(kind, {})

    @property
    def names(self) -> list[str]:
        """Return the names of all sets, registers and pods; these contain the names of groups."""
        return [name for kind in ("StatefulSet", "Lease", "Pod") for name in self.of(kind)]

    @property
    def has_brokers(self) -> bool:
        """Return whether a broker's pod exists, or may exist because pods cannot be listed."""
        return "Pod" in self.failed or any(_component(each) == "broker" for each in self.of("Pod").values())


    @property
    def had_brokers(self) -> bool:
        """Return whether brokers run or may run: without a list of pods, a set or a register means that they may."""
        if "Pod" not in self.failed:
            return self.has_brokers
        return any(kind in self.failed or self.of(kind) for kind in ("StatefulSet", "Lease"))


NOTHING = Listing({}, dict.fromkeys(KINDS, KubeError("lists", 0, "not answered yet")))


async def listing(kube: Reads, key: Key) -> Listing:
    """List each kind, all at the same time, each within `LIST_S`; errors are part of the result."""

    async def every(kind: str) -> dict[str, Document] | KubeError:
        try:
            async with asyncio.timeout(LIST_S):
                found = await kube.listed(folder_in(kind, key.namespace), {LABEL_CLUSTER: key.name})
        except KubeError as error:
            return error
        except TimeoutError:
            return KubeError(f"list of {kind}", 0, f"no answer within {LIST_S:g} s")
        return {each["metadata"]["name"]: typed(kind, each) for each in found}

    answers = dict(zip(KINDS, await asyncio.gather(*map(every, KINDS)), strict=True))
    failed = {kind: each for kind, each in answers.items() if isinstance(each, KubeError)}
    found = {kind: each for kind, each in answers.items() if not isinstance(each, KubeError)}
    return Listing(found, failed)


async def registers(kube: Reads, cluster: BrokerCluster, listed: Listing) -> Listing:
    """Add the cluster's registers, read one by one, if their list failed; unreadable ones are left out."""
    if "Lease" not in listed.failed:
        return listed
    names = [group.name for group in cluster.groups()]
    found: dict[str, Document] = {}
    try:
        async with asyncio.timeout(LIST_S):
            for name in names:
                lease = await kube.get(lease_path(cluster.key.namespace, name))
                found |= {} if lease is None else {name: lease}
    except (KubeError, TimeoutError):
        return listed
    failed = {kind: error for kind, error in listed.failed.items() if kind != "Lease"}
    return Listing({**listed.documents, "Lease": found}, failed)


def seen(cluster: BrokerCluster, listed: Listing) -> Snapshot:
    """Make the snapshot without the members' answers."""
    pods, sets, claims = listed.of("Pod"), listed.of("StatefulSet"), listed.of("PersistentVolumeClaim")
    dropped = claims if cluster.drops_claims else {}
    asked = {revision: _image(each) for each in sets.values() if (revision := revision_seen(each))}
    found = {name: pod_seen(each) for name, each in pods.items()}
    found = {name: replace(each, asked_image=asked.get(each.revision, "")) for name, each in found.items()}
    things = ListedObjects(found, sets, listed.of("Lease"), dropped)
    stateless = {
        component: [things.pods[name] for name, each in sorted(pods.items()) if _component(each) == component]
        for component in ("nameserver", *(kind.component for kind in DOORS))
    }
    nameservers = stateless.pop("nameserver")
    groups = [_group(group, things) for group in cluster.groups()]
    differing = volumes.differing(cluster, claims)
    unseen = frozenset(listed.failed)
    return Snapshot(cluster, groups, nameservers, stateless, sets=sets, volumes=differing, unseen=unseen)


async def missing_secrets(kube: Reads, cluster: BrokerCluster) -> list[str]:
    """Return the names of image pull Secrets that do not exist."""

    async def missing(name: str) -> bool:
        return await kube.get(f"{folder_in('Secret', cluster.key.namespace)}/{name}") is None

    absent = await asyncio.gather(*map(missing, cluster.image.secrets))
    return [name for name, is_missing in zip(cluster.image.secrets, absent, strict=True) if is_missing]


def with_sets(snapshot: Snapshot, applied: Iterable[Document]) -> Snapshot:
    """Return the snapshot with sets as the API server returned them after they were applied."""
    sets = {each["metadata"]["name"]: each for each in applied if each["kind"] == "StatefulSet"}
    groups = [
        replace(seen, **_of_set(sets[seen.group.name])) if seen.group.name in sets else seen for seen in snapshot.groups
    ]
    return replace(snapshot, groups=groups, sets={**snapshot.sets, **sets})


async def answers(asks: Asks, snapshot: Snapshot, key: bytes, now_s: float) -> Snapshot:
    """Return the snapshot with the members' answers, and with the members that did not answer."""
    found = await asyncio.gather(*(asks.look(group, key) for group in snapshot.groups))
    heard = [replace(group, answers=said) for group, said in zip(snapshot.groups, found, strict=True)]
    return replace(snapshot, groups=[replace(group, absent=group.lost(now_s)) for group in heard])


class ListedObjects(NamedTuple):
    """The listed objects of one snapshot, by name."""

    pods: Mapping[str, Pod]
    sets: Mapping[str, Document]
    leases: Mapping[str, Document]
    claims: Mapping[str, Document]


def _group(group: Group, things: ListedObjects) -> GroupSeen:
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
    """Return the path of a member's volume claim."""
    return f"{folder_in('PersistentVolumeClaim', group.cluster.key.namespace)}/{group.claim(ordinal)}"


def _component(document: Document) -> str:
    return str(document["metadata"].get("labels", {}).get(LABEL_COMPONENT, ""))


def _image(made: Document) -> str:
    """Return the image of the server's container in a set's template."""
    template = made["spec"]["template"]
    containers = template["spec"].get("containers", [])
    return next((str(each.get("image", "")) for each in containers if each["name"] == _component(template)), "")
