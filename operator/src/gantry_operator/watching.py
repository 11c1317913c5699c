"""A failover loop for each group: `gantry.failover.watch`, with pods for members and Leases for registers.

It goes on whatever becomes of the rest: a specification that cannot be read, an API that refuses a status, a slow pass.
It keeps no state, so an operator that is started anew goes on where the former one was, and two of them do no harm.
Registers are asked with the leader's token: whoever leads no longer asks nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from gantry.clock import Clock
from gantry.failover.decide import Decision, Policy
from gantry.failover.timers import TIMERS
from gantry.failover.watch import Watch, Watched
from gantry.replication.haproof import Keys
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_GROUP, PROMISES, BrokerCluster, Group, Key
from gantry_operator.desired.brokers import HA_API_PORT
from gantry_operator.sightings import Addresses, Sightings

log = logging.getLogger("gantry.operator")

Told = Callable[[Key, str, Decision], None]


class Watches:
    """By cluster and group; `told` hears of every decision that differs from the one before."""

    def __init__(
        self,
        account: Account,
        token: Callable[[], str],
        sightings: Sightings,
        clock: Clock,
        told: Told,
        end: Callable[[str], None],
    ) -> None:
        self._server = account.server
        self._token = token
        self._sightings = sightings
        self._clock = clock
        self._told = told
        self._end = end
        self._trust = account.trust()
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
        address = LeaseAddress(self._server, namespace, group.name, self._token, self._trust, labels)
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
