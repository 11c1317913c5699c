"""A failover loop for each group: `gantry.failover.watch`, with pods for members and Leases for registers.

It goes on whatever becomes of the rest: a specification that cannot be read, an API that refuses a status, a slow pass.
A group that is to be watched in another way is watched anew, which costs no more than patience begun again.  It keeps
no state, so an operator that is started anew goes on where the former one was, and two of them do no harm.

A standby watches too, and does nothing (`acts`): when it leads, it goes on with what it has seen so far, and a master
that has been silent for long enough is sealed at once.  Registers are written with the leader's token alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gantry.clock import Clock
from gantry.errors import GantryError
from gantry.failover.decide import Decision, Forced, Policy
from gantry.failover.timers import Timers
from gantry.failover.watch import Watch, Watched
from gantry.replication import operations
from gantry.replication.haproof import Keys
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry.replication.operations import Denied
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_GROUP, Group, Key
from gantry_operator.api.terms import terms_of, weakest
from gantry_operator.desired.brokers import HA_API_PORT
from gantry_operator.sightings import Addresses, Sightings
from gantry_operator.snapshot import GroupSeen, Snapshot

log = logging.getLogger("gantry.operator")

NEWS_MAX = 1000
FORGET_S = 5.0
Told = Callable[[Key, str, Decision], None]


class Order(NamedTuple):
    """How a group is watched."""

    policy: Policy
    timers: Timers


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
        acts: Callable[[], bool],
    ) -> None:
        self._account = account
        self._token = token
        self._acts = acts
        self._sightings = sightings
        self._clock = clock
        self._told = told
        self._end = end
        self._trust = account.trust()
        self._writer = secrets.token_hex(4)
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        self._orders: dict[tuple[Key, str], tuple[Order, bytes]] = {}
        self._last: dict[tuple[Key, str], Decision] = {}
        self._news: deque[tuple[Key, str, Decision]] = deque(maxlen=NEWS_MAX)

    def keep(self, snapshot: Snapshot, key: bytes) -> None:
        """Watch each group of the cluster, on the terms on which its members work now."""
        for seen in snapshot.groups:
            place = snapshot.cluster.key, seen.group.short
            wanted = order_of(seen)
            if self._orders.get(place) == (wanted, key):
                continue
            former = self._tasks.pop(place, None)
            if former is not None:
                former.cancel()
            task = asyncio.create_task(self._watch(seen.group, wanted, Keys(key)))
            task.add_done_callback(self._ended)
            self._tasks[place], self._orders[place] = task, (wanted, key)

    def last(self, key: Key, group: str) -> Decision | None:
        """What was decided about a group last."""
        return self._last.get((key, group))

    def news(self, key: Key) -> list[tuple[str, Decision]]:
        """What was decided about a cluster's groups since the last time that somebody asked here."""
        ours = [each for each in self._news if each[0] == key]
        self._news = deque((each for each in self._news if each[0] != key), NEWS_MAX)
        return [(group, decision) for _, group, decision in ours]

    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str:
        """Have the register forget the disk of a member that is gone; why not, empty when it has."""
        register = self._register(seen.group, FORGET_S)
        try:
            found = await register.read()
            if found is None:
                return ""
            wanted = operations.remove(found.record, ordinal)
            if isinstance(wanted, Denied):
                return wanted.reason
            if wanted != found.record:
                await register.write(wanted, found.version)
        except GantryError as error:
            return str(error)
        finally:
            await register.close()
        return ""

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        for place in [each for each in self._tasks if each[0] == key]:
            self._tasks.pop(place).cancel()
            self._orders.pop(place, None)
            self._last.pop(place, None)

    async def close(self) -> None:
        """No more decisions."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, group: Group, order: Order, keys: Keys) -> None:
        cluster = group.cluster
        namespace, pods = cluster.key.namespace, [group.pod(ordinal) for ordinal in range(order.policy.replicas)]
        addresses = Addresses(self._sightings, namespace, pods, HA_API_PORT)
        register = self._register(group, order.timers.answer_within_s)
        place = cluster.key, group.short

        def told(decision: Decision) -> None:
            log.info("%s/%s: %s", namespace, group.name, decision)
            self._last[place] = decision
            self._news.append((*place, decision))
            self._told(*place, decision)

        def gone() -> frozenset[int]:
            return frozenset(ordinal for ordinal, pod in enumerate(pods) if self._sightings.is_gone(namespace, pod))

        watched = Watched(group.name, addresses, order.policy, order.timers)
        try:
            await Watch(watched, register, keys, self._clock, told, gone, self._acts).run()
        finally:
            await register.close()

    def _register(self, group: Group, within_s: float) -> LeaseRegister:
        key = group.cluster.key
        labels = {LABEL_CLUSTER: key.name, LABEL_GROUP: group.short}
        server, reading = self._account.server, self._account.token
        address = LeaseAddress(server, key.namespace, group.name, reading, self._trust, labels, self._token)
        return LeaseRegister(address, self._writer, within_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._end(f"a failover loop died: {task.exception()!r}")


def order_of(seen: GroupSeen) -> Order:
    """How a group is watched: with the members that there are, on the weakest of their terms, as people wish."""
    cluster, group = seen.group.cluster, seen.group
    failover, wishes = cluster.brokers.failover, cluster.wishes
    terms = weakest(terms_of(cluster.brokers), [pod.terms for pod in seen.pods.values()])
    choice = wishes.choice
    forced = None
    if choice is not None and choice.group == group.number and choice.ordinal < seen.size:
        forced = Forced(choice.ordinal, choice.epoch, choice.accept_split, failover.may_be_unclean)
    timers = terms.timers
    policy = Policy(
        seen.size,
        terms.min_in_sync,
        terms.is_sync and failover.has_fast_path,
        timers.suspect_after_s,
        after_total_power_loss=failover.after_total_power_loss,
        is_automatic=failover.is_automatic and not wishes.is_failover_paused,
        forced=forced,
    )
    return Order(policy, timers)
