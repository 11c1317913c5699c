"""The brokers of a cluster: the master of each group and its address.

The master is read from the register.  A member is addressed by the name of its own Service, which never changes while
the cluster exists: the address of a pod may have been another cluster's a moment ago.

What was read is reused for `FRESH_S`, since thousands of topics need it at the same time; it is discarded at once when
a failover loop has decided something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gantry.clock import Clock
from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import BrokerCluster, Document, Group, Key
from gantry_operator.desired.brokers import PORT
from gantry_operator.kube import cluster_path, lease_path
from gantry_operator.snapshot import register_seen

FRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """The master of one broker group."""

    short: str  # b0
    broker: str  # the group's brokerName
    epoch: int
    address: str  # of its master; empty while there is no master


@dataclass(frozen=True, slots=True)
class Territory:
    """The masters and name servers of one cluster."""

    key: Key
    is_going: bool
    places: tuple[BrokerGroup, ...]
    nameservers: tuple[str, ...]


class Documents(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...


class Territories:
    """The recently read territories, by cluster."""

    def __init__(self, kube: Documents, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[Key, tuple[float, Territory]] = {}
        self._reading: dict[Key, asyncio.Lock] = {}

    async def of(self, key: Key) -> Territory | None:
        """Return the masters of a cluster, at most `FRESH_S` old; None when the cluster does not exist."""
        async with self._reading.setdefault(key, asyncio.Lock()):
            at_s, known = self._known.get(key, (0.0, None))
            if known is not None and self._clock.monotonic() - at_s < FRESH_S:
                return known
            document = await self._kube.get(cluster_path(key))
            if document is None:
                self._known.pop(key, None)
                return None
            cluster = lenient.read(document)
            places = tuple([await self._place(cluster, group) for group in cluster.groups()])
            found = Territory(key, cluster.is_going, places, tuple(cluster.nameserver_addresses))
            self._known[key] = self._clock.monotonic(), found
            return found

    def forget(self, key: Key) -> None:
        """Discard what was read of a cluster, because it has changed."""
        self._known.pop(key, None)
        self._reading.pop(key, None)

    async def _place(self, cluster: BrokerCluster, group: Group) -> BrokerGroup:
        namespace = cluster.key.namespace
        register = register_seen(await self._kube.get(lease_path(namespace, group.name)))
        if register is None:
            return BrokerGroup(group.short, group.name, 0, "")
        leads = "" if register.master is None else f"{group.pod(register.master)}.{namespace}.svc:{PORT}"
        return BrokerGroup(group.short, group.name, register.epoch, leads)
