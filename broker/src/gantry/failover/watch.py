"""Runs the coordinator of one group, with its members' addresses and the cluster's id.

A coordinator needs the cluster's id before it may believe an answer.  The id comes from, in this order:
    - the register
    - the configuration; a cluster of several groups has one id
    - the members' disks (the register was lost, and is made again from them)
    - a random number, when the group is new

Two watchers that draw an id at the same time agree by the register, because only one of them creates it.  So a drawn id
is dropped as soon as there is a register.

Where one of several watchers acts, the others watch without acting (`acts`), so that the next one takes over at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gantry.clock import Clock
from gantry.errors import GantryError
from gantry.failover.asking import AskedMembers
from gantry.failover.coordinator import Coordinator, Group, always
from gantry.failover.decide import Blocked, Decision, Policy, Wait
from gantry.replication.haproof import Keys
from gantry.replication.register import Register, RegisterDamagedError, Seen
from gantry.replication.timers import TIMERS, Timers


@dataclass(frozen=True, slots=True)
class Watched:
    """A group and how it is watched; `addresses`: HOST:PORT of each member's `/ha/v1`, by ordinal."""

    name: str
    addresses: Sequence[str]  # looked up at each request, so they may change; an empty text: not known now
    policy: Policy  # what the coordinator was told (`agreement`)
    timers: Timers | None  # None: the members' renewals decide
    cluster_uid: str = ""  # empty: taken from the register or the members


class Watch:
    """Watches one group. `tell` is called with each decision that differs from the one before."""

    def __init__(
        self,
        watched: Watched,
        register: Register,
        keys: Keys,
        clock: Clock,
        tell: Callable[[Decision], None],
        gone: Callable[[], frozenset[int]] = frozenset,
        acts: Callable[[], bool] = always,
    ) -> None:
        self._watched = watched
        self._usual = watched.timers or TIMERS["default"]  # until the members have said theirs
        self._register = register
        self._keys = keys
        self._clock = clock
        self._tell = tell
        self._gone = gone
        self._acts = acts
        self._said: Decision | None = None

    async def run(self) -> None:
        """Watch until cancelled; every wait is bounded."""
        while True:
            uid = await self._settle()
            members = self._members(uid)
            try:
                await self._coordinator(uid, members).run()
            finally:
                await members.close()

    async def _settle(self) -> str:
        """Return the cluster's id: the register's, the configured one, the members' one, or a new one."""
        seen = await self._read()
        if seen is not None:
            return seen.record.cluster_uid
        if self._watched.cluster_uid:
            return self._watched.cluster_uid
        return await self._told_by_members() or f"{random.SystemRandom().getrandbits(128):032x}"

    async def _read(self) -> Seen | None:
        """Return what the register holds, as soon as it can be read; None when there is no register."""
        while True:
            try:
                return await self._register.read()
            except RegisterDamagedError as error:
                self._say(Blocked(str(error)))
            except GantryError as error:
                self._say(Wait(f"the register cannot be read: {error}"))
            await asyncio.sleep(self._usual.poll_every_s)

    async def _told_by_members(self) -> str:
        members = self._members("")
        try:
            answers = await asyncio.gather(*map(members.state, range(len(self._watched.addresses))))
        finally:
            await members.close()
        found = sorted({answer.cluster_uid for answer in answers if answer is not None and answer.cluster_uid})
        if len(found) > 1:
            self._say(Blocked(f"the members are of different clusters: {', '.join(found)}"))
        return found[0] if found else ""

    def _members(self, uid: str) -> AskedMembers:
        watched = self._watched
        within_s = self._usual.answer_within_s
        address = watched.addresses.__getitem__
        return AskedMembers(uid, watched.name, address, self._keys, self._clock, within_s, self._gone)

    def _coordinator(self, uid: str, members: AskedMembers) -> Coordinator:
        watched = self._watched
        ordinals = tuple(range(len(watched.addresses)))
        lease_s = watched.timers.lease_s if watched.timers is not None else 0
        group = Group(uid, watched.name, ordinals, watched.policy, lease_s)
        return Coordinator(group, self._register, members, self._clock, self._say, self._acts)

    def _say(self, decision: Decision) -> None:
        if decision != self._said and self._acts():
            self._said = decision
            self._tell(decision)
