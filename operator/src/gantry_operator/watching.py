"""A failover loop for each group: `gantry.failover.watch`, with pods for members and Leases for registers.

It goes on whatever becomes of the rest: a specification that cannot be read, an API that refuses a status, a slow pass.
It keeps no state, so an operator that is started anew goes on where the former one was, and two of them do no harm.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from pathlib import Path

from gantry.clock import Clock
from gantry.failover.decide import Decision, Policy
from gantry.failover.timers import TIMERS
from gantry.failover.watch import Watch, Watched
from gantry.replication.haproof import Keys
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_GROUP, PROMISES, BrokerCluster, Group, Key
from gantry_operator.desired.brokers import HA_API_PORT
from gantry_operator.sightings import Addresses, Sightings

log = logging.getLogger("gantry.operator")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Told = Callable[[Key, str, Decision], None]


class Watches:
    """By cluster and group; `told` hears of every decision that differs from the one before."""

    def __init__(self, server: str, sightings: Sightings, clock: Clock, told: Told, end: Callable[[str], None]) -> None:
        self._server = server
        self._sightings = sightings
        self._clock = clock
        self._told = told
        self._end = end
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        self._writer = secrets.token_hex(4)
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}

    def keep(self, cluster: BrokerCluster, key: bytes) -> None:
        """Watch each group of the cluster that is not watched yet."""
        for group in cluster.groups():
            place = cluster.key, group.short
            if place not in self._tasks:
                task = asyncio.create_task(self._watch(group, Keys(key)))
                task.add_done_callback(self._ended)
                self._tasks[place] = task

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        for place in [each for each in self._tasks if each[0] == key]:
            self._tasks.pop(place).cancel()

    async def close(self) -> None:
        """No more decisions."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, group: Group, keys: Keys) -> None:
        cluster = group.cluster
        namespace, brokers = cluster.key.namespace, cluster.brokers
        promise, timers = PROMISES[brokers.profile], TIMERS[brokers.timers]
        is_sync = promise.role == "SYNC_MASTER"
        policy = Policy(brokers.replicas, promise.min_in_sync, is_sync, timers.suspect_after_s)
        addresses = Addresses(self._sightings, namespace, group.pods, HA_API_PORT)
        labels = {LABEL_CLUSTER: cluster.key.name, LABEL_GROUP: group.short}
        address = LeaseAddress(self._server, namespace, group.name, _token, self._trust, labels)
        register = LeaseRegister(address, self._writer, timers.answer_within_s)

        def told(decision: Decision) -> None:
            log.info("%s/%s: %s", namespace, group.name, decision)
            self._told(cluster.key, group.short, decision)

        def gone() -> frozenset[int]:
            pods = enumerate(group.pods)
            return frozenset(ordinal for ordinal, pod in pods if self._sightings.is_gone(namespace, pod))

        watched = Watched(group.name, addresses, policy, timers)
        try:
            await Watch(watched, register, keys, self._clock, told, gone).run()
        finally:
            await register.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._end(f"a failover loop died: {task.exception()!r}")


def _token() -> str:
    """The kubelet replaces it."""
    return (ACCOUNT / "token").read_text(encoding="utf-8").strip()
