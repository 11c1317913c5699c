"""Carrying out one step of a plan: idempotent, and only on the object that was seen, identified by its uid.

A step that was done meanwhile by another program, or that a member refuses, is no error: the next pass looks again.
The result is an Event that says what was done, or why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gantry.clock import Clock
from gantry.replication.haapi import CLONE, CONFIG, HANDOVER
from gantry_operator.api.brokercluster import BrokerCluster, Document, Image, Key
from gantry_operator.api.wishes import RECLONE
from gantry_operator.desired import brokers
from gantry_operator.desired.labels import stamped
from gantry_operator.events import NORMAL, WARNING, News
from gantry_operator.kube import path_of
from gantry_operator.observe import Asks, claim_path
from gantry_operator.orders import Orders
from gantry_operator.snapshot import Denied, GroupSeen, Order
from gantry_operator.steps import Configure, Forget, HandOver, Hold, Reclone, Replace, Resize, Step


class ObjectWriter(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def apply(self, document: Document) -> Document: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


class Registers(Protocol):
    """The part of `watching.Watches` by which registers of groups are changed."""

    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str: ...


class Hands:
    """Carries out steps, and stores which orders members refused."""

    def __init__(self, kube: ObjectWriter, asks: Asks, registers: Registers, clock: Clock) -> None:
        self._kube = kube
        self._asks = asks
        self._registers = registers
        self._clock = clock
        self._orders = Orders()

    def denied(self, key: Key, group: str) -> Mapping[Order, Denied]:
        """Orders that were refused in a group, and whether each may be given again."""
        return self._orders.denied(key, group, self._clock.monotonic())

    def due_s(self, key: Key, latest_s: float) -> float:
        """After how long an order that was refused may be given again; `latest_s` at most."""
        return min(latest_s, self._orders.due_s(key, self._clock.monotonic()))

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._orders.forget(key)

    async def carry_out(self, cluster: BrokerCluster, step: Step, key: bytes, image: Image) -> News | None:
        """Carry out one step; return an Event about it, or None."""
        pods = f"/api/v1/namespaces/{cluster.key.namespace}/pods"
        match step:
            case Hold():
                return None
            case Replace(pod):
                await self._kube.delete(f"{pods}/{pod.name}", pod.uid)
                return News(NORMAL, "PodReplaced", f"{pod.name} is replaced by one of the present template")
            case Resize(group, replicas):
                wanted = stamped(_set(group, image, replicas))
                if cluster.image.held is None:
                    await self._kube.apply(wanted)
                else:  # its template waits for the cluster's turn
                    await self._kube.merge(path_of(wanted), {"spec": {"replicas": replicas}})
                return News(NORMAL, "Resized", f"{group.group.name} has {replicas} members now")
            case Configure(group, ordinal, keys):
                name = group.group.pod(ordinal)
                refused = await self._asks.order(group, key, ordinal, CONFIG, keys=dict(keys))
                self._note(step, refused)
                if refused:
                    return News(WARNING, "NotConfigured", f"{name}: {', '.join(keys)}: {refused}")
                return News(NORMAL, "Configured", f"{name} runs with other values of {', '.join(keys)}")
            case HandOver():
                return await self._hand_over(cluster, step, key)
            case Reclone(group, ordinal, refused):
                refused = refused or await self._asks.order(group, key, ordinal, CLONE)
                name = group.group.pod(ordinal)
                await self._kube.merge(f"{pods}/{name}", {"metadata": {"annotations": {RECLONE: None}}})
                if refused:
                    return News(WARNING, "RecloneRefused", f"{name}: {refused}")
                return News(NORMAL, "Recloned", f"{name} throws its log away and copies everything again")
            case Forget():
                return await self._forget(step)

    def _note(self, step: Configure | HandOver | Forget, refused: str) -> None:
        group = step.group.group
        self._orders.given(group.cluster.key, group.short, step.order, refused, self._clock.monotonic())

    async def _hand_over(self, cluster: BrokerCluster, step: HandOver, key: bytes) -> News:
        group, target = step
        assert group.register is not None and group.register.master is not None
        master, within_s = group.register.master, min(cluster.brokers.handover_s, 60.0)
        refused = await self._asks.order(group, key, master, HANDOVER, target=target, within_s=within_s)
        self._note(step, refused)
        if refused:
            return News(WARNING, "NotHandedOver", f"{group.master_pod} still leads: {refused}")
        return News(NORMAL, "HandedOver", f"{group.master_pod} is to go, {group.group.pod(target)} leads")

    async def _forget(self, step: Forget) -> News:
        group, ordinal = step
        name = group.group.pod(ordinal)
        refused = await self._registers.forget_disk(group, ordinal)
        self._note(step, refused)
        if refused:
            return News(WARNING, "NotForgotten", f"{name}: {refused}")
        if ordinal in group.claims:
            await self._kube.delete(claim_path(group.group, ordinal), group.claims[ordinal])
        return News(NORMAL, "MemberForgotten", f"{name} is no member any more, and its volume goes")


def _set(group: GroupSeen, image: Image, replicas: int) -> Document:
    rolled = brokers.rolled(group.group.cluster.wishes.roll, group.set_roll)
    made = brokers.objects(group.group, image, brokers.Shape(replicas, rolled))
    return next(each for each in made if each["kind"] == "StatefulSet")
