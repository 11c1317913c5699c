"""Owned objects of a cluster: each kind is listed once, and objects that differ are applied server-side.

What "differ" means stands in `drift`.  Objects come in batches, in which what a set needs stands before it; what the
API server refuses goes to `refusals`, which says what it stops.  Batches are applied concurrently, `AT_ONCE` at a time.
An apply whose answer still differs (an admission webhook changes the object) is not repeated until the object or
what is wanted changes; that memory is all the state there is, and it is lost without harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gantry_operator.api.brokercluster import LABEL_CLUSTER, BrokerCluster, Document, Key
from gantry_operator.desired.labels import APPLIED, stamped
from gantry_operator.drift import Difference, content, difference, taken_over
from gantry_operator.events import WARNING, News
from gantry_operator.kube import KubeError, folder_in, path_of, typed
from gantry_operator.refusals import NEEDED, Refusals

AT_ONCE = 8
# Kinds that are listed, one call each; sets are read with the pods (`observe`), Secrets may not be listed.
LISTED = (
    "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount",
)  # fmt: skip
Batch = Sequence[Document]
There = Mapping[str, Document]  # by path


class Applies(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def apply(self, document: Document) -> Document: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


@dataclass(slots=True)
class ApplyResult:
    """The results for the objects that differed."""

    applied: list[Document] = field(default_factory=list)  # as the API server answered
    repaired: list[Difference] = field(default_factory=list)  # objects that others had changed
    stays: list[Difference] = field(default_factory=list)  # an apply did not change that

    def news(self) -> list[News]:
        """Return an Event for repaired objects, and one for objects that still differ."""
        found = []
        if self.repaired:
            said = _listed(self.repaired)
            found.append(News(WARNING, "DriftRepaired", f"changed, and set back to what the cluster says: {said}"))
        if self.stays:
            hint = "something changes it on its way, such as an admission webhook; have it leave the object alone"
            said = f"differs also after it was applied: {_listed(self.stays)}; {hint}"
            found.append(News(WARNING, "DriftStays", said))
        return found


class Owned:
    """Lists and applies owned objects of all clusters."""

    def __init__(self, kube: Applies) -> None:
        self._kube = kube
        self._stays: dict[str, tuple[str, str]] = {}  # path -> digest that was wanted, content of the answer

    async def look(self, cluster: BrokerCluster, sets: Iterable[Document], secrets: Iterable[str]) -> There:
        """Return the existing objects by path: each kind is listed once, Secrets are read by name."""
        namespace, labels = cluster.key.namespace, {LABEL_CLUSTER: cluster.key.name}
        paths = [f"{folder_in('Secret', namespace)}/{name}" for name in secrets]
        lists, named = await asyncio.gather(
            asyncio.gather(*(self._listed(kind, namespace, labels) for kind in LISTED)),
            asyncio.gather(*(self._kube.get(path) for path in paths)),
        )
        found = {path_of(each): each for held in [*lists, sets] for each in held}
        return found | {path: each for path, each in zip(paths, named, strict=True) if each is not None}

    def differences(self, batches: Sequence[Batch], there: There) -> list[list[Difference]]:
        """Return, for every batch, the objects that an apply may change."""
        return [[each for wanted in batch if (each := self._difference(wanted, there))] for batch in batches]

    async def put(self, batches: Sequence[Sequence[Difference]], refusals: Refusals) -> ApplyResult:
        """Apply these objects; failures go to `refusals`."""
        outcome, places = ApplyResult(), asyncio.Semaphore(AT_ONCE)

        async def one(batch: Sequence[Difference]) -> None:
            async with places:
                await self._put(batch, outcome, refusals)

        await asyncio.gather(*(one(batch) for batch in batches if batch))
        return outcome

    async def remove(self, paths: Iterable[str], there: There, refusals: Refusals) -> None:
        """Delete the objects at these paths by the uid that was seen; failures go to `refusals`."""
        for path in paths:
            about = there[path]["metadata"]
            try:
                await self._kube.delete(path, about["uid"])
            except KubeError as error:
                refusals.add(f"the deletion of {there[path]['kind']} {about['name']}", error)

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        middle = f"/namespaces/{key.namespace}/"
        self._stays = {path: each for path, each in self._stays.items() if middle not in path}

    async def _listed(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Document]:
        found = await self._kube.listed(folder_in(kind, namespace), labels)
        return [typed(kind, each) for each in found]

    def _difference(self, document: Document, there: There) -> Difference | None:
        wanted = stamped(document)
        path = path_of(wanted)
        found = there.get(path)
        differs = difference(wanted, found)
        is_known = found is not None and self._stays.get(path) == (_digest(wanted), content(found))
        return None if is_known else differs

    async def _put(self, batch: Sequence[Difference], outcome: ApplyResult, refusals: Refusals) -> None:
        is_lacking = False
        for each in batch:
            kind = each.wanted["kind"]
            if is_lacking and kind in ("StatefulSet", "Deployment"):
                continue
            try:
                answer = await self._apply(each)
            except KubeError as error:
                refusals.add_apply(each.name, error)
                is_lacking = is_lacking or kind in NEEDED
                continue
            outcome.applied.append(answer)
            path, left = path_of(each.wanted), difference(each.wanted, answer)
            if left is not None:
                self._stays[path] = _digest(each.wanted), content(answer)
                outcome.stays.append(left)
                continue
            self._stays.pop(path, None)
            if each.is_drift:
                outcome.repaired.append(each)

    async def _apply(self, differs: Difference) -> Document:
        """Apply an object and return the answer; fields of others are taken over before, on the version seen."""
        there = differs.there
        if there is not None and differs.managers:
            about = {"resourceVersion": there["metadata"]["resourceVersion"], "managedFields": taken_over(there)}
            await self._kube.merge(path_of(differs.wanted), {"metadata": about})
        return await self._kube.apply(differs.wanted)


def _digest(wanted: Document) -> str:
    return str(wanted["metadata"]["annotations"][APPLIED])


def _listed(found: Sequence[Difference]) -> str:
    more = f"; and {len(found) - 3} more objects" if len(found) > 3 else ""
    return "; ".join(each.said for each in found[:3]) + more
