"""Writing the status of a cluster, and Events of what changed in it.

An unchanged status is not written; changes that need no attention are written every `TELL_S` at most.
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
from gantry_operator.recording import EventWriter, Recorder
from gantry_operator.snapshot import Snapshot

TELL_S = 2.0  # between two statuses without an urgent difference


class Decisions(Protocol):
    """The part of `watching.Watches` that is used here."""

    def news(self, key: Key) -> list[tuple[str, Decision]]: ...


class Telling:
    """Writes the statuses and Events of clusters."""

    def __init__(self, kube: EventWriter, loops: Decisions, clock: Clock) -> None:
        self._kube = kube
        self._loops = loops
        self._clock = clock
        self._recorder = Recorder(kube)
        self._told_s: dict[Key, float] = {}

    @property
    def now(self) -> str:
        """Return the present time as Kubernetes writes it."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def live(self, snapshot: Snapshot, said: Iterable[Condition]) -> bool:
        """Write these conditions, the present state of groups, and Events; return whether the status was written."""
        cluster = snapshot.cluster
        told = status.live(snapshot, said, self.now)
        is_told = await self.tell(cluster.key, cluster.status, told)
        await self.record(cluster, told if is_told else None, [])
        return is_told

    async def tell(self, key: Key, former: Mapping[str, Any], told: Document) -> bool:
        """Write a status; return False when it is delayed: not urgent, and the last one is not `TELL_S` old."""
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
        """Write Events: these, decisions of failover loops, and changes in the status that was written (`told`)."""
        decided = [events.decided(group, decision) for group, decision in self._loops.news(cluster.key)]
        every = [*news, *(each for each in decided if each is not None)]
        if told is not None:
            every += events.changed(cluster.status, told)
        await self._recorder.record(cluster.key, cluster.uid, every, self.now)

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._told_s.pop(key, None)
        self._recorder.forget(key)


def _said(told: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the parts of a status whose change is urgent."""
    return [(each["type"], each["status"], each["reason"]) for each in told.get("conditions", [])]
