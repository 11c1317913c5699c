"""Doing one step of a plan: idempotent, on the object that was seen and no other of its name.

A step that somebody else has done meanwhile, or that a member refuses, is no fault: the next pass looks again.  What
was done, or why not, comes back as what there is to tell.
"""

from __future__ import annotations

from typing import Protocol

from gantry.replication.haapi import CLONE, CONFIG, HANDOVER
from gantry_operator.api.brokercluster import BrokerCluster, Document, Image
from gantry_operator.api.wishes import RECLONE
from gantry_operator.desired import brokers
from gantry_operator.desired.labels import stamped
from gantry_operator.events import NORMAL, WARNING, News
from gantry_operator.observe import Asks, claim_path
from gantry_operator.plan import Configure, Forget, HandOver, Hold, Reclone, Replace, Resize, Step
from gantry_operator.snapshot import GroupSeen


class Writes(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def apply(self, document: Document) -> Document: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


class Registers(Protocol):
    """The registers of groups, as `watching.Watches` reaches them."""

    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str: ...


class Hands:
    """What steps are done with."""

    def __init__(self, kube: Writes, asks: Asks, registers: Registers) -> None:
        self._kube = kube
        self._asks = asks
        self._registers = registers

    async def carry_out(self, cluster: BrokerCluster, step: Step, key: bytes, image: Image) -> News | None:
        """One step; what to tell of it."""
        pods = f"/api/v1/namespaces/{cluster.key.namespace}/pods"
        match step:
            case Hold():
                return None
            case Replace(pod):
                await self._kube.delete(f"{pods}/{pod.name}", pod.uid)
                return News(NORMAL, "PodReplaced", f"{pod.name} is replaced by one of the present template")
            case Resize(group, replicas):
                await self._kube.apply(stamped(_set(group, image, replicas)))
                return News(NORMAL, "Resized", f"{group.group.name} has {replicas} members now")
            case Configure(group, ordinal, keys):
                name = group.group.pod(ordinal)
                refused = await self._asks.order(group, key, ordinal, CONFIG, keys=dict(keys))
                if refused:
                    return News(WARNING, "NotConfigured", f"{name}: {', '.join(keys)}: {refused}")
                return News(NORMAL, "Configured", f"{name} runs with other values of {', '.join(keys)}")
            case HandOver(group, target):
                return await self._hand_over(cluster, group, target, key)
            case Reclone(group, ordinal, refused):
                refused = refused or await self._asks.order(group, key, ordinal, CLONE)
                name = group.group.pod(ordinal)
                await self._kube.merge(f"{pods}/{name}", {"metadata": {"annotations": {RECLONE: None}}})
                if refused:
                    return News(WARNING, "RecloneRefused", f"{name}: {refused}")
                return News(NORMAL, "Recloned", f"{name} throws its log away and copies everything anew")
            case Forget(group, ordinal):
                return await self._forget(group, ordinal)

    async def _hand_over(self, cluster: BrokerCluster, group: GroupSeen, target: int, key: bytes) -> News:
        assert group.register is not None and group.register.master is not None
        master, within_s = group.register.master, min(cluster.brokers.handover_s, 60.0)
        refused = await self._asks.order(group, key, master, HANDOVER, target=target, within_s=within_s)
        if refused:
            return News(WARNING, "NotHandedOver", f"{group.master_pod} still leads: {refused}")
        return News(NORMAL, "HandedOver", f"{group.master_pod} is to go, {group.group.pod(target)} leads")

    async def _forget(self, group: GroupSeen, ordinal: int) -> News:
        name = group.group.pod(ordinal)
        refused = await self._registers.forget_disk(group, ordinal)
        if refused:
            return News(WARNING, "NotForgotten", f"{name}: {refused}")
        if ordinal in group.claims:
            await self._kube.delete(claim_path(group.group, ordinal), group.claims[ordinal])
        return News(NORMAL, "MemberForgotten", f"{name} is no member any more, and its volume goes")


def _set(group: GroupSeen, image: Image, replicas: int) -> Document:
    rolled = brokers.rolled(group.group.cluster.wishes.roll, group.set_roll)
    made = brokers.objects(group.group, image, brokers.Shape(replicas, rolled))
    return next(each for each in made if each["kind"] == "StatefulSet")
