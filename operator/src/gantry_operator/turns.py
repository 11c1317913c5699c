"""Turns of clusters under `imagechoice`: the other clusters are read only while one waits for a newer image.

A turn is decided and given in one step of the event loop, so two concurrent passes never both begin.  It is remembered
until the cluster's status shows the new image.  After a change of leader the order of names picks the same cluster
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from gantry_operator.api.brokercluster import GROUP, PLURAL, VERSION, BrokerCluster, Document, Held, Key
from gantry_operator.desired.labels import ASKED
from gantry_operator.imagechoice import Candidate, ImageChoice, candidate, choose
from gantry_operator.kube import KubeError
from gantry_operator.settings import OnUpgrade, Settings

_SETS = ("StatefulSet", "Deployment")
_ROOT = f"/apis/{GROUP}/{VERSION}"


class Differs(Protocol):
    """The part of `drift.Difference` that is used here."""

    @property
    def wanted(self) -> Document: ...
    @property
    def there(self) -> Document | None: ...


D = TypeVar("D", bound=Differs)


def not_held(cluster: BrokerCluster, batches: Iterable[Sequence[D]]) -> list[list[D]]:
    """Return what is applied now: for a cluster that waits for its turn, no set that only the new operator changes.

    Its pods must not be replaced, and another version of the operator may make other templates.  Changes of users are
    applied at once, with the image that the cluster has.
    """
    return [_free(cluster, batch) for batch in batches]


def _free(cluster: BrokerCluster, batch: Sequence[D]) -> list[D]:
    sets = [each for each in batch if each.wanted["kind"] in _SETS]
    if cluster.image.held is None or not any(_is_as_asked(cluster, each) for each in sets):
        return list(batch)
    return [each for each in batch if each.wanted["kind"] not in (*_SETS, "ConfigMap")]


def _is_as_asked(cluster: BrokerCluster, each: Differs) -> bool:
    """Return whether users changed nothing since the set was applied; older operators' sets lack the annotation."""
    if each.there is None:
        return False
    here = each.there["metadata"].get("annotations", {}).get(ASKED)
    if here is None:
        return cluster.status.get("observedGeneration") == cluster.generation
    return bool(here == each.wanted["metadata"]["annotations"][ASKED])


class Lists(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...


class Turns:
    """Decides which image each cluster gets now."""

    def __init__(self, kube: Lists, settings: Settings) -> None:
        self._kube = kube
        self._policy = settings.on_upgrade
        self._default = settings.broker_image
        self._folders = [f"{_ROOT}/namespaces/{each}/{PLURAL}" for each in settings.namespaces]
        self._folders = self._folders or [f"{_ROOT}/{PLURAL}"]
        self._begun: set[Key] = set()

    async def resolved(self, cluster: BrokerCluster, document: Document) -> BrokerCluster:
        """Return the cluster with its image; `image.held` says why it is not the operator's default."""
        if cluster.image.name:
            self._begun.discard(cluster.key)
            return cluster
        choice = await self._choice(candidate(document, self._default))
        return replace(cluster, image=replace(cluster.image, name=choice.image, held=choice.held))

    async def _choice(self, mine: Candidate) -> ImageChoice:
        if mine.is_out or mine.image == self._default:
            self._begun.discard(mine.key)
        if mine.key in self._begun:
            return ImageChoice(self._default)
        alone = choose(self._policy, self._default, mine, [])
        if self._policy is not OnUpgrade.ONE_BY_ONE or alone.held is not None or mine.image in ("", self._default):
            return alone
        try:
            others = await self._others()
        except KubeError as error:
            said = f"{self._default} waits: the other clusters could not be read: {error}"
            return ImageChoice(mine.image, Held("WaitsForTurn", said))
        self._begun &= {each.key for each in others if each.follows and each.image != self._default}
        choice = choose(self._policy, self._default, mine, map(self._as_begun, others))
        if choice.held is None:
            self._begun.add(mine.key)
        return choice

    async def _others(self) -> list[Candidate]:
        found = [await self._kube.listed(folder, {}) for folder in self._folders]
        return [candidate(each, self._default) for documents in found for each in documents]

    def _as_begun(self, of: Candidate) -> Candidate:
        """Return the candidate with the new image, if its turn was given and the status does not show it yet."""
        return of._replace(image=self._default, is_settled=False) if of.key in self._begun else of
