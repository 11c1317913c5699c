"""A failover loop for each group: `gantry.failover.watch`, with pods as members and Leases as registers.

It goes on when other parts fail: a specification that cannot be read, an API that refuses a status, a slow pass.
A loop that fails by a fault of ours is logged with its traceback, counted, and begun again after a pause that doubles
up to a minute; the loops of all other groups go on.
When the settings of a loop change, it is started again, which only restarts its timers.  It keeps no state, so a
restarted operator goes on where the former one was, and two of them do no harm.

A standby runs the loops too, without acting (`acts`).  When it becomes the leader, it goes on with what it has seen,
and a group whose master has been silent for long enough is sealed at once.  Registers are written only with the
leader's token.
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
from gantry.failover.decide import Blocked, Decision, Forced, Policy
from gantry.failover.watch import Watch, Watched
from gantry.replication import operations
from gantry.replication.haproof import Keys
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry.replication.operations import Denied
from gantry.replication.timers import Timers
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_GROUP, Group, Key
from gantry_operator.api.terms import terms_of, weakest
from gantry_operator.desired.brokers import HA_API_PORT
from gantry_operator.sightings import Addresses, Sightings
from gantry_operator.snapshot import GroupSeen, Snapshot

log = logging.getLogger("gantry.operator")

NEWS_MAX = 1000
FORGET_S = 5.0
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
Told = Callable[[Key, str, Decision], None]


class WatchSettings(NamedTuple):
    """The settings of a group's failover loop."""

    policy: Policy
    timers: Timers


class Watches:
    """All failover loops, by cluster and group; `told` is called for every decision that differs from the last one."""

    def __init__(
        self,
        account: Account,
        token: Callable[[], str],
        sightings: Sightings,
        clock: Clock,
        told: Told,
        failed: Callable[[], None],
        acts: Callable[[], bool],
    ) -> None:
        self._account = account
        self._token = token
        self._acts = acts
        self._sightings = sightings
        self._clock = clock
        self._told = told
        self._failed = failed
        self._trust = account.trust()
        self._writer = secrets.token_hex(4)
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        self._orders: dict[tuple[Key, str], tuple[WatchSettings, bytes]] = {}
        self._last: dict[tuple[Key, str], Decision] = {}
        self._news: deque[tuple[Key, str, Decision]] = deque(maxlen=NEWS_MAX)
        self._groups: dict[Key, frozenset[str]] = {}  # which groups should have a loop; empty: not known yet
        self._faults: dict[tuple[Key, str], str] = {}  # of loops that failed and have decided nothing since

    def expect(self, key: Key) -> None:
        """Announce a cluster: until `keep` has started its loops it counts as one group without a loop."""
        self._groups.setdefault(key, frozenset())

    def keep(self, snapshot: Snapshot, key: bytes) -> None:
        """Run a loop for each group of the cluster, on the present terms of its members.

        While pods cannot be listed, an existing loop is not changed, and a new one begins with careful terms.
        """
        is_careful = "Pod" in snapshot.unseen
        for seen in snapshot.groups:
            place = snapshot.cluster.key, seen.group.short
            former_order = self._orders.get(place)
            if is_careful and former_order is not None and former_order[1] == key:
                continue
            wanted = former_order[0] if is_careful and former_order is not None else order_of(seen, is_careful)
            if former_order == (wanted, key):
                continue
            former = self._tasks.pop(place, None)
            if former is not None:
                former.cancel()
            self._tasks[place] = asyncio.create_task(self._go_on(seen.group, wanted, Keys(key)))
            self._orders[place] = wanted, key
        self._groups[snapshot.cluster.key] = frozenset(seen.group.short for seen in snapshot.groups)

    def key_of(self, key: Key) -> bytes | None:
        """Return the key with which the cluster's loops ask members; None without a loop."""
        return next((secret for place, (_, secret) in self._orders.items() if place[0] == key), None)

    def unwatched(self, key: Key) -> dict[str, str]:
        """Return the groups of the cluster without a running loop, and why; an empty text: not started."""
        found = {group: "" for group in self._groups.get(key, ()) if (key, group) not in self._tasks}
        return found | {group: fault for (cluster, group), fault in self._faults.items() if cluster == key}

    @property
    def unwatched_count(self) -> int:
        """Count groups without a loop over all clusters; a cluster of which no group is known counts as one."""
        return sum(len(self.unwatched(key)) if groups else 1 for key, groups in self._groups.items())

    def last(self, key: Key, group: str) -> Decision | None:
        """Return the last decision about a group; None without any."""
        return self._last.get((key, group))

    def news(self, key: Key) -> list[tuple[str, Decision]]:
        """Return the decisions about a cluster's groups since the last call."""
        ours = [each for each in self._news if each[0] == key]
        self._news = deque((each for each in self._news if each[0] != key), NEWS_MAX)
        return [(group, decision) for _, group, decision in ours]

    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str:
        """Remove the disk of a deleted member from the register; return why not, an empty text when it is removed."""
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
        """Forget everything about a deleted cluster."""
        self._groups.pop(key, None)
        for place in [each for each in self._tasks if each[0] == key]:
            self._tasks.pop(place).cancel()
            self._orders.pop(place, None)
            self._last.pop(place, None)
            self._faults.pop(place, None)

    async def close(self) -> None:
        """Cancel all failover loops and wait until they have ended."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_on(self, group: Group, order: WatchSettings, keys: Keys) -> None:
        """Run a loop until cancelled; after a failure it is started again."""
        cluster, pause_s = group.cluster.key, PAUSE_S_MIN
        while True:
            begun_s = self._clock.monotonic()
            try:
                await self._watch(group, order, keys)
            except Exception as error:  # one group's loop must not end those of all others
                log.error("%s/%s: the failover loop failed", cluster.namespace, group.name, exc_info=error)
                fault = f"the failover loop failed ({error!r}) and is begun again; the operator's log has the traceback"
                self._faults[cluster, group.short] = fault
                self._hear(cluster, group, Blocked(fault))
                self._failed()
            if self._clock.monotonic() - begun_s > PAUSE_S_MAX:
                pause_s = PAUSE_S_MIN
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _watch(self, group: Group, order: WatchSettings, keys: Keys) -> None:
        cluster = group.cluster
        namespace, pods = cluster.key.namespace, [group.pod(ordinal) for ordinal in range(order.policy.replicas)]
        addresses = Addresses(self._sightings, namespace, pods, HA_API_PORT)
        register = self._register(group, order.timers.answer_within_s)

        def told(decision: Decision) -> None:
            self._faults.pop((cluster.key, group.short), None)
            self._hear(cluster.key, group, decision)

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

    def _hear(self, key: Key, group: Group, decision: Decision) -> None:
        log.info("%s/%s: %s", key.namespace, group.name, decision)
        self._last[key, group.short] = decision
        self._news.append((key, group.short, decision))
        self._told(key, group.short, decision)


def order_of(seen: GroupSeen, is_careful: bool = False) -> WatchSettings:
    """Return the settings of a group's loop: its existing members, their weakest terms, and the users' requests.

    `is_careful`: there may be a member whose terms are not known, so the loop waits for a former master's whole Lease.
    """
    cluster, group = seen.group.cluster, seen.group
    failover, wishes = cluster.brokers.failover, cluster.wishes
    found = [pod.terms for pod in seen.pods.values()]
    terms = weakest(terms_of(cluster.brokers), [*found, None] if is_careful else found)
    choice = wishes.choice
    forced = None
    if choice is not None and choice.group == group.number and choice.ordinal < seen.size:
        forced = Forced(choice.ordinal, choice.epoch, choice.accept_split, failover.may_be_unclean)
    timers = terms.timers
    policy = Policy(
        seen.size,
        terms.min_in_sync,
        terms.is_sync,
        timers.suspect_after_s,
        after_total_power_loss=failover.after_total_power_loss,
        is_automatic=failover.is_automatic and not wishes.is_failover_paused,
        forced=forced,
        has_fast_path=failover.has_fast_path,
        knows_size=True,  # the members' lists have a place for every pod that a group may ever have
    )
    return WatchSettings(policy, timers)
