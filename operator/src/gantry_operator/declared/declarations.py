"""One pass over one BrokerTopic or ConsumerGroup: it is applied to the brokers, and its status is written.

As with clusters, a pass begins with the present state of the API server and the brokers, and the next pass needs
nothing of it: a pass may be repeated, missed or interrupted anywhere.  The brokers are checked again each minute,
and soon after every decision of a failover loop: a new master may lack a change that was not replicated.

An object whose brokers do not answer is tried less and less often, down to once a minute.

An object has our finalizer only while its topic or group is to be deleted with it.  When the cluster is deleted, the
finalizer is removed without a request to the brokers: the deletion of a namespace must not wait for a topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from gantry.clock import Clock
from gantry_operator.api.brokercluster import Document
from gantry_operator.api.declared import FINALIZER, About, Declared, Kind
from gantry_operator.conditions import Condition
from gantry_operator.declared import outcome
from gantry_operator.declared.claims import Claims
from gantry_operator.declared.numbers import Bucket
from gantry_operator.declared.outcome import Fault, PassResult
from gantry_operator.declared.territory import Territories, Territory
from gantry_operator.kube import declared_path

SOON_S, WAITING_S, LATER_S = 1.0, 15.0, 60.0
NUMBERS_A_SECOND = 5.0
_PAUSED = ("Deleting", "it goes, and its thing with it, when it is not paused any more")


class ObjectPatcher(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def merge(self, path: str, change: Document) -> None: ...


class Thing(Protocol):
    """An object as a value."""

    @property
    def about(self) -> About: ...
    @property
    def status(self) -> Mapping[str, Any]: ...


class KindHandler(Protocol):
    """The operations on objects of one kind; each `thing` is a value that `read` returned."""

    def read(self, document: Document) -> Any: ...
    async def apply(self, thing: Any, territory: Territory) -> PassResult: ...
    async def remove(self, thing: Any, territory: Territory) -> list[Fault]: ...
    def forget(self, key: Declared) -> None: ...


class Declarations:
    """Passes over objects of one kind; `once` returns in how many seconds the next pass is due."""

    def __init__(
        self,
        kube: ObjectPatcher,
        things: Mapping[Kind, KindHandler],
        territories: Territories,
        claims: Claims,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._things = things
        self._territories = territories
        self._claims = claims
        self._clock = clock
        self._pauses: dict[Declared, float] = {}
        self._numbers = Bucket(NUMBERS_A_SECOND)

    async def once(self, key: Declared) -> float | None:
        """Run one pass; return in how many seconds the next one is due, None when the object does not exist."""
        document = await self._kube.get(declared_path(key))
        things = self._things[key.kind]
        if document is None:
            things.forget(key)
            self._pauses.pop(key, None)
            return None
        thing: Thing = things.read(document)
        about = thing.about
        territory = await self._territories.of(about.cluster_key)
        if about.is_going:
            return await self._let_go(thing, things, territory)
        if territory is None or territory.is_going:
            return await self._wait(thing, outcome.no_cluster(about))
        older = await self._claims.older(about)
        if older is not None:
            return await self._wait(thing, outcome.conflict(about, older))
        if about.deletes != about.is_held and not about.is_paused:
            await self._hold(about, about.deletes)
            return SOON_S
        found = await things.apply(thing, territory)
        said = outcome.ready(about, found)
        await self._tell(thing, outcome.status_of(about, thing.status, said, found, self._now()))
        return self._again(about.key, found.faults, found.waits[0])

    async def _let_go(self, thing: Thing, things: KindHandler, territory: Territory | None) -> float:
        about = thing.about
        if not about.is_held:
            return LATER_S
        is_ours = about.deletes and await self._claims.older(about) is None
        if is_ours and territory is not None and not territory.is_going:
            faults = [] if about.is_paused else await things.remove(thing, territory)
            if faults or about.is_paused:
                found = PassResult(_kept(thing.status), faults, _PAUSED)
                said = outcome.ready(about, found)
                await self._tell(thing, outcome.status_of(about, thing.status, said, found, self._now()))
                return self._again(about.key, faults, "")
        await self._hold(about, False)
        return LATER_S

    async def _wait(self, thing: Thing, said: Condition) -> float:
        """Write a status without anything about brokers, because they cannot be asked; return when to try again."""
        fields = {key: each for key, each in _kept(thing.status).items() if key == "lastReset"}
        told = outcome.status_of(thing.about, thing.status, said, PassResult(fields), self._now())
        gone: Document = {key: None for key in thing.status if key not in told}
        await self._tell(thing, told | gone)
        return LATER_S

    async def _hold(self, about: About, is_held: bool) -> None:
        """Add or remove our finalizer, only on the version of the object that was read."""
        others = [each for each in about.finalizers if each != FINALIZER]
        wanted = [*others, FINALIZER] if is_held else others
        change = {"metadata": {"resourceVersion": about.version, "finalizers": wanted}}
        await self._kube.merge(declared_path(about.key), change)

    async def _tell(self, thing: Thing, told: Document) -> None:
        meant = {key: each for key, each in told.items() if each is not None}
        if meant == thing.status:
            return
        is_urgent = outcome.without_numbers(meant) != outcome.without_numbers(thing.status)
        if is_urgent or self._numbers.take(self._clock.monotonic()):
            await self._kube.merge(f"{declared_path(thing.about.key)}/status", {"status": told})

    def _again(self, key: Declared, faults: Sequence[Fault], waits: str) -> float:
        if not any(not each.is_final for each in faults):
            self._pauses.pop(key, None)
            return WAITING_S if waits else LATER_S
        pause_s = self._pauses.get(key, SOON_S)
        self._pauses[key] = min(2 * pause_s, LATER_S)
        return pause_s

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _kept(status: Mapping[str, Any]) -> Document:
    return {key: each for key, each in status.items() if key not in ("conditions", "observedGeneration")}
