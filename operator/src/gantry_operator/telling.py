"""Writing the status of a cluster, and Events of what changed in it.

A status that says nothing new is not written; what nobody is woken for is written every `TELL_S` at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from gantry.clock import Clock
from gantry.failover.decide import Decision
from gantry_operator import events, status
from gantry_operator.api.brokercluster import BrokerCluster, Document, Key
from gantry_operator.conditions import Condition
from gantry_operator.events import News
from gantry_operator.kube import cluster_path
from gantry_operator.recording import Recorder
from gantry_operator.recording import Writes as Records
from gantry_operator.snapshot import Snapshot

TELL_S = 2.0  # between two statuses that differ in nothing that people are woken for


class Decisions(Protocol):
    """The failover loops, as `watching.Watches` keeps them."""

    def news(self, key: Key) -> list[tuple[str, Decision]]: ...


class Telling:
    """What people read of a cluster."""

    def __init__(self, kube: Records, loops: Decisions, clock: Clock) -> None:
        self._kube = kube
        self._loops = loops
        self._clock = clock
        self._recorder = Recorder(kube)
        self._told_s: dict[Key, float] = {}

    @property
    def now(self) -> str:
        """As Kubernetes writes a time."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def live(self, snapshot: Snapshot, said: Iterable[Condition]) -> bool:
        """These conditions, with groups as they are now, and Events; whether it is written."""
        cluster = snapshot.cluster
        told = status.live(snapshot, said, self.now)
        is_told = await self.tell(cluster.key, cluster.status, told)
        await self.record(cluster, told if is_told else None, [])
        return is_told

    async def tell(self, key: Key, former: Mapping[str, Any], told: Document) -> bool:
        """False: later, since nothing in it is urgent and the last one is not `TELL_S` old."""
        if told == former:
            return True
        now_s = self._clock.monotonic()
        is_urgent = _said(told) != _said(former)
        if not is_urgent and now_s - self._told_s.get(key, -TELL_S) < TELL_S:
            return False
        self._told_s[key] = now_s
        await self._kube.merge(f"{cluster_path(key)}/status", {"status": told})
        return True

    async def record(self, cluster: BrokerCluster, told: Document | None, news: Iterable[News]) -> None:
        """Events: these, what failover loops decided, and what changed in the status that was written (`told`)."""
        decided = [events.decided(group, decision) for group, decision in self._loops.news(cluster.key)]
        every = [*news, *(each for each in decided if each is not None)]
        if told is not None:
            every += events.changed(cluster.status, told)
        await self._recorder.record(cluster.key, cluster.uid, every, self.now)

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._told_s.pop(key, None)
        self._recorder.forget(key)


def _said(told: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What people are woken for."""
    return [(each["type"], each["status"], each["reason"]) for each in told.get("conditions", [])]
