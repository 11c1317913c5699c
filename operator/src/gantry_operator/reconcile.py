"""One pass over one cluster: what should be there is put there, the next step is done, what is there is told.

Every pass begins with what the API server and the members say now, and keeps nothing that it could not read again, so
it may be repeated, missed or broken off anywhere.  An object that is as it was applied (`drift`) is not applied again,
and a status that says nothing new is not written: an unchanged cluster costs reads only, one list of each kind.

The failover loops are given their orders first: whatever is refused, paused or slow after that does not concern them.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from gantry.clock import Clock
from gantry.errors import ConfigError
from gantry.failover.decide import Blocked, Decision, Wait
from gantry_operator import conditions, events, observe, plan, status, steps, teardown
from gantry_operator.act import Hands
from gantry_operator.api import brokercluster
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_ROLE, BrokerCluster, Document, Image, Key
from gantry_operator.desired import binding, brokers, nameservers, policies
from gantry_operator.desired.labels import owned
from gantry_operator.drift import leftover
from gantry_operator.events import News
from gantry_operator.kube import KubeError, cluster_path, path_of
from gantry_operator.owned import Owned
from gantry_operator.recording import Recorder
from gantry_operator.refusals import Refusals, is_refusal
from gantry_operator.settings import Settings
from gantry_operator.snapshot import GroupSeen, Snapshot
from gantry_operator.turns import Turns, not_held

SOON_S, LATER_S = 2.0, 60.0
TELL_S = 2.0  # between two statuses that differ in nothing that people are woken for
SECRET_BYTES = 32
_KEY = "key"
_ASKED_FOR = "; the failover that was asked for: "


class Objects(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def create(self, document: Document) -> bool: ...
    async def apply(self, document: Document) -> Document: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


class Groups(Protocol):
    """The failover loops, as `watching.Watches` keeps them."""

    def expect(self, key: Key) -> None: ...
    def keep(self, snapshot: Snapshot, key: bytes) -> None: ...
    def last(self, key: Key, group: str) -> Decision | None: ...
    def news(self, key: Key) -> list[tuple[str, Decision]]: ...
    def forget(self, key: Key) -> None: ...
    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str: ...


class Reconciler:
    """`once(key)`; answers when it wants to look again."""

    def __init__(self, kube: Objects, settings: Settings, watches: Groups, asks: observe.Asks, clock: Clock) -> None:
        self._kube = kube
        self._settings = settings
        self._watches = watches
        self._asks = asks
        self._clock = clock
        self._hands = Hands(kube, asks, watches, clock)
        self._owned = Owned(kube)
        self._recorder = Recorder(kube)
        self._turns = Turns(kube, settings)
        self._keys: dict[Key, bytes] = {}  # a secret that somebody deletes is made again as it was
        self._told_s: dict[Key, float] = {}

    async def once(self, key: Key) -> float | None:
        """None: there is no such cluster any more."""
        found = await self._kube.get(cluster_path(key))
        if found is None:
            self._watches.forget(key)
            for each in (self._owned, self._hands, self._recorder):
                each.forget(key)
            self._keys.pop(key, None)
            return None
        self._watches.expect(key)
        try:
            cluster = brokercluster.read(found)
        except ValueError as error:
            await self._stall(key, found, "Invalid", str(error))
            return LATER_S
        if cluster.is_going:
            return await self._end(cluster, found)
        cluster = await self._turns.resolved(cluster, found)
        secret = await self._secret(cluster)
        snapshot, refusals = await self._look(cluster, secret), Refusals()
        try:
            brokers.as_run(next(cluster.groups()))
        except ConfigError as error:
            await self._label(snapshot)
            await self._stall(key, found, "Refused", f"{error}; nothing is changed")
            return LATER_S
        snapshot, news = await self._put(snapshot, found, refusals)
        snapshot = await self._ask(snapshot, secret)
        await self._label(snapshot)
        return await self._go_on(snapshot, secret, refusals, news)

    async def failed(self, key: Key, error: Exception) -> None:
        """Write into the status that a pass failed, where a person has something to do about it."""
        if isinstance(error, TimeoutError) or (isinstance(error, KubeError) and not is_refusal(error)):
            return
        found = await self._kube.get(cluster_path(key))
        if found is not None and isinstance(error, KubeError):
            await self._stall(key, found, "Refused", f"the API server refuses {error}; a failover loop goes on")
        elif found is not None:
            said = f"the operator failed at this cluster ({error!r}) and tries again; its log has the traceback"
            await self._stall(key, found, "PassFailed", f"{said}; a failover loop goes on")

    async def _look(self, cluster: BrokerCluster, secret: bytes) -> Snapshot:
        snapshot = await observe.look(self._kube, cluster)
        self._watches.keep(snapshot, secret)
        groups = [self._with_decision(each) for each in snapshot.groups]
        return replace(snapshot, groups=groups)

    async def _ask(self, snapshot: Snapshot, secret: bytes) -> Snapshot:
        return await observe.answers(self._asks, snapshot, secret, self._clock.now_ms() / 1000)

    def _with_decision(self, seen: GroupSeen) -> GroupSeen:
        """With what the failover loop says of the group, and what its members refused."""
        key = seen.group.cluster.key
        seen = replace(seen, denied=self._hands.denied(key, seen.group.short))
        last = self._watches.last(key, seen.group.short)
        if not isinstance(last, Blocked | Wait):
            return seen
        reason, _, refused = last.reason.partition(_ASKED_FOR)
        return replace(seen, blocked=reason if isinstance(last, Blocked) else "", refused=refused)

    async def _go_on(self, snapshot: Snapshot, secret: bytes, refusals: Refusals, repaired: list[News]) -> float:
        """The next step, and the status."""
        cluster, image = snapshot.cluster, self._image(snapshot.cluster)
        step = None if cluster.wishes.is_paused else plan.next_step(snapshot)
        if isinstance(step, steps.Resize) and refusals:
            step = steps.Hold(f"{step.group.group.short}: its set is resized when nothing is refused any more")
        found = conditions.conditions(snapshot, image.name, self._clock.now_ms() / 1000, step)
        if refusals:
            found = status.hindered(found, "Refused", refusals.message)
        told = status.status_of(snapshot, found, self._now())
        decided = [events.decided(group, decision) for group, decision in self._watches.news(cluster.key)]
        is_told = await self._tell(cluster.key, cluster.status, told)
        news: list[News] = [*repaired, *(each for each in decided if each is not None)]
        if is_told:
            news += events.changed(cluster.status, told)
        if step is not None:
            done = await self._hands.carry_out(cluster, step, secret, image)
            news += [done] if done is not None else []
        await self._recorder.record(cluster.key, cluster.uid, news, self._now())
        is_waiting = (refusals or cluster.wishes.is_paused) and (step is None or isinstance(step, steps.Hold))
        return LATER_S if is_told and (is_waiting or status.is_settled(told)) else SOON_S

    async def _end(self, cluster: BrokerCluster, found: Document) -> float | None:
        if not cluster.has_finalizer:
            return LATER_S
        if not cluster.drops_claims:
            await teardown.mark(self._kube, cluster, found, False)
            return LATER_S
        self._watches.forget(cluster.key)
        return LATER_S if await teardown.clear(self._kube, cluster, found) else SOON_S

    async def _secret(self, cluster: BrokerCluster) -> bytes:
        """What the members prove to each other; made once, and whoever made it first is right."""
        known = self._keys.get(cluster.key) or secrets.token_hex(SECRET_BYTES).encode()
        wanted: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": cluster.secret},
            "type": "Opaque",
            "data": {_KEY: base64.b64encode(known).decode()},
        }
        document = owned(cluster, wanted, {LABEL_CLUSTER: cluster.key.name})
        found = await self._kube.get(path_of(document))
        if found is None:
            await self._kube.create(document)
            found = await self._kube.get(path_of(document))
        if found is None or _KEY not in found.get("data", {}):
            raise KubeError(f"Secret {cluster.secret}", 422, f"it has no {_KEY!r}; delete it, and it is made anew")
        self._keys[cluster.key] = base64.b64decode(found["data"][_KEY])
        return self._keys[cluster.key]

    async def _put(self, snapshot: Snapshot, found: Document, refusals: Refusals) -> tuple[Snapshot, list[News]]:
        """Apply the objects that differ; those that are refused go to `refusals`. While paused, only name them."""
        cluster = snapshot.cluster
        there = await self._owned.look(cluster, snapshot.sets.values(), [binding.name_of(cluster)])
        wanted = self._wanted(snapshot)
        differing = self._owned.differences(wanted, there)
        if cluster.wishes.is_paused:
            names = sorted(each.name for batch in differing for each in batch)
            return replace(snapshot, unapplied=names), []
        if cluster.drops_claims is not cluster.has_finalizer:
            try:
                await teardown.mark(self._kube, cluster, found, cluster.drops_claims)
            except KubeError as error:
                refusals.add(f"the finalizer of {cluster.key.name}", error)
        outcome = await self._owned.put(not_held(cluster, differing), refusals)
        snapshot = observe.with_sets(snapshot, outcome.applied)
        await self._owned.remove(leftover(wanted, there, snapshot), there, refusals)
        return snapshot, outcome.news()

    def _wanted(self, snapshot: Snapshot) -> list[list[Document]]:
        """Batches of objects that belong together, what a set needs before it."""
        cluster, image = snapshot.cluster, self._image(snapshot.cluster)
        batches = [policies.objects(cluster, self._settings.home), binding.objects(cluster)]
        batches.append(nameservers.objects(cluster, image))
        for seen in snapshot.groups:
            shape = brokers.Shape(seen.set_replicas, brokers.rolled(cluster.wishes.roll, seen.set_roll))
            batches.append(brokers.objects(seen.group, image, shape))
        return batches

    async def _label(self, snapshot: Snapshot) -> None:
        """Who leads, for people and for `kubectl get pods -L`; nothing is decided by it."""
        folder = f"/api/v1/namespaces/{snapshot.cluster.key.namespace}/pods"
        for group in snapshot.groups:
            for pod, role in group.roles().items():
                if group.pods[pod].role != role:
                    await self._kube.merge(f"{folder}/{pod}", {"metadata": {"labels": {LABEL_ROLE: role}}})

    async def _stall(self, key: Key, found: Document, reason: str, message: str) -> None:
        former = found.get("status", {})
        told = status.stalled(former, int(found["metadata"]["generation"]), reason, message, self._now())
        if await self._tell(key, former, told):
            await self._recorder.record(key, str(found["metadata"]["uid"]), events.changed(former, told), self._now())

    async def _tell(self, key: Key, former: Mapping[str, Any], told: Document) -> bool:
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

    def _image(self, cluster: BrokerCluster) -> Image:
        return replace(cluster.image, volume_group=self._settings.volume_group)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(told: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What people are woken for."""
    return [(each["type"], each["status"], each["reason"]) for each in told.get("conditions", [])]
