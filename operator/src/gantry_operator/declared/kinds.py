"""BrokerTopics and ConsumerGroups as parts of the operator: which events trigger a pass, and the passes.

Objects of one cluster take turns, `AT_ONCE` of them at a time; those of another do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gantry.client.brokeradmin import BrokerAdmin
from gantry.clock import Clock
from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.declared.asking import Asking
from gantry_operator.declared.claims import Claims
from gantry_operator.declared.declarations import Declarations, KindHandler, ObjectPatcher
from gantry_operator.declared.groups import Groups
from gantry_operator.declared.territory import Documents, Territories
from gantry_operator.declared.topics import Topics
from gantry_operator.declared.waking import Waking
from gantry_operator.metrics import Metrics
from gantry_operator.passes import Passes

AT_ONCE = 4
ANSWER_S = 5.0


class ApiAccess(Documents, ObjectPatcher, Protocol):
    """The part of `kube.Kube` that is used here."""


class DeclaredKinds:
    """What all declared kinds share: connections to brokers, and recently read data."""

    def __init__(self, kube: ApiAccess, clock: Clock, metrics: Metrics, add: Callable[[Declared, float], None]) -> None:
        self._brokers = BrokerAdmin(ANSWER_S)
        territories, claims = Territories(kube, clock), Claims(kube, clock)
        asking = Asking(clock)
        things: dict[Kind, KindHandler] = {
            Kind.TOPIC: Topics(self._brokers, asking, clock),
            Kind.CONSUMER_GROUP: Groups(kube, self._brokers, asking, clock),
        }
        self.waking = Waking(territories, claims, add)
        once = Declarations(kube, things, territories, claims, clock).once
        self._passes = {kind: Passes(once, metrics, clock, kind.value.removesuffix("s")) for kind in Kind}
        self._turns: dict[Key, asyncio.Semaphore] = {}

    async def once(self, key: Declared) -> float | None:
        """Run a pass when it is this object's turn; the time limit of a pass does not include the wait."""
        cluster = self.waking.cluster_of(key)
        if cluster is None:
            return await self._passes[key.kind].once(key)
        async with self._turns.setdefault(cluster, asyncio.Semaphore(AT_ONCE)):
            return await self._passes[key.kind].once(key)

    async def close(self) -> None:
        """Close the connections to brokers."""
        await self._brokers.close()
