"""One run of a group in which not everybody was told the same terms, and whose master loses everybody but its clients.

Each member has terms of its own (`termsplan.Terms`), and so has each coordinator; half of the runs have equal members
and a coordinator that was told something else, as by a configuration that was written twice.  Whatever they are, no two
masters acknowledge: `witness` looks at every acknowledgement.  What such a group loses is what the weakest terms allow.

Several times the master is cut off from members, register and coordinators, while clients reach both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.broker.settings.config import Role
from gantry.replication.timers import TIMERS
from simulation.clients import Producer
from simulation.groupplan import PLACES, GroupRun
from simulation.groupworld import Shape
from simulation.register import HOST as REGISTER
from simulation.routes import Always
from simulation.termsplan import ALL_TERMS, weakest_of

if TYPE_CHECKING:
    from simulation.groupmember import GroupMember

_CUTS = 3
_WHOLE_S = 6.0  # the set is whole again before the next cut
_CUT_S = (4.0, 12.0, 20.0, 20.0)


class MismatchRun(GroupRun):
    """One seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._stubborn: list[Producer] = []

    def _shape(self, shape: Shape) -> Shape:
        world = self.world
        same = world.chance.choice((*ALL_TERMS, ALL_TERMS[-1]))  # the last one is a broker's default
        is_same = world.chance.random() < 0.5
        members = max(3, shape.members)
        self._told = [same if is_same else world.chance.choice(ALL_TERMS) for _ in range(members)]
        weakest = weakest_of(self._told)
        # With the default timers a lease lasts twice as long as another member needs to be chosen.
        timers = TIMERS[self.world.chance.choice(("default", "default", "fast"))]
        weak = replace(shape, is_sync_master=weakest.is_sync, min_in_sync=weakest.min_in_sync)
        return replace(weak, members=members, timers=timers)

    def _more_producers(self) -> list[Producer]:
        """One that speaks to each member, be it the master or not."""
        for number, member in enumerate(self.group.members):
            stubborn = Producer(
                self.world, self.group.network, f"10.0.1.{10 + number}", Always(member.address), self._ledger, PLACES
            )
            stubborn.wall_ms, stubborn.pause_s = self._wall_ms, 0.1
            stubborn.run(stubborn.main)
            self._stubborn.append(stubborn)
        return []

    def _go_wrong(self, producers: list[Producer]) -> None:
        for member in self.group.members:
            member.stop(for_good=True)
        self._run(_WHOLE_S)
        for member, terms in zip(self.group.members, self._told, strict=True):
            member.kill()
            member.set_terms(Role.SYNC_MASTER if terms.is_sync else Role.ASYNC_MASTER, terms.min_in_sync)
            self.world.say(f"{member.host} was told {terms}")
            member.start()
        mistaken = self.world.chance.choice((*ALL_TERMS, ALL_TERMS[0]))
        for watcher in self.group.watchers:
            terms = self.world.chance.choice((mistaken, mistaken, *ALL_TERMS))
            self.world.say(f"{watcher.host} was told {terms}")
            watcher.set_terms(terms.is_sync, terms.min_in_sync)
        for _ in range(_CUTS):
            self._run(_WHOLE_S)
            leader = self.group.leader()
            if leader is not None:
                self._until_renewed()
                self._cut_off(leader)
                self._faults.count += 1
                self._run(self.world.chance.choice(_CUT_S))
                self.group.network.heal()
        for one in self._stubborn:
            one.is_stopped = True

    def _until_renewed(self) -> None:
        """A lease that has just been renewed lasts longest."""
        service = self.group.service
        before = service.seen
        self.world.run(self.world.now + _WHOLE_S, lambda: service.seen != before)

    def _cut_off(self, leader: GroupMember) -> None:
        self.world.say(f"{leader.host} is cut off from everybody but clients")
        for host in self.group.hosts - {leader.host}:
            if host.startswith(("10.0.0.", "10.0.6.")) or host == REGISTER:
                self.group.network.cut(leader.host, host)
                self.group.network.cut(host, leader.host)

