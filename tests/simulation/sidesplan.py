"""One run of a group with several name servers, of which some are cut off with the master, and clients on both sides.

    island        the master, one name server or more, and so many slaves that the others are still enough
    mainland      the others, the register and the coordinators
    clients       reach both sides, and ask any of the name servers, like RocketMQ's: the same one as long as it answers

The cut is in both directions or in one, and stays.  A name server on the island hears nothing of the new master.  It
must not name the old one for long when that one refuses everybody: producers then find the new one by the others.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.failover.decide import MARGIN_S
from simulation.groupworld import Shape
from simulation.register import HOST as REGISTER
from simulation.routes import BySeveral, Route
from simulation.slowplan import SlowRun

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_SETTLES_S = 4.0
_REGISTERED_S = 4.0  # a broker says once in a period who it is, and waits so long for an answer
_WAYS = ("both", "both", "from the island", "to the island")


class SidesRun(SlowRun):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        members = max(3, shape.members)
        least = min(shape.min_in_sync, members - 1)
        return replace(shape, members=members, min_in_sync=least, name_servers=self.world.chance.choice((2, 2, 3)))

    def _route(self, is_reader: bool = False) -> Route:
        servers, chance = self.group.name_server_addresses, random.Random(self.world.chance.getrandbits(64))
        return BySeveral(servers, chance, is_reader)

    @property
    def _judged_after_s(self) -> float:
        """The old master may serve until its lease ends, and clients are told by name servers a while later."""
        shape = self.group.shape
        return shape.promised_s + shape.timers.lease_s + MARGIN_S + _REGISTERED_S

    def _go_wrong(self, producers: list[Producer]) -> None:
        self._run(_SETTLES_S)
        leader = self._settled_leader()
        island = self._island(leader)
        mainland = self.group.hosts - island
        how = self.world.chance.choice(_WAYS)
        self.world.say(f"an island: {sorted(island)}, and the cut is {how}")
        self._faults.count += 1
        for one in island:
            for other in mainland:
                if how != "to the island":
                    self.group.network.cut(one, other)
                if how != "from the island":
                    self.group.network.cut(other, one)
        self._judge(f"an island of {sorted(island)}, cut {how}", self._judged_after_s)

    def _island(self, leader: GroupMember) -> set[str]:
        chance, shape = self.world.chance, self.group.shape
        slaves = [member.host for member in self.group.members if member is not leader]
        chance.shuffle(slaves)
        here = slaves[: chance.randrange(shape.members - max(2, shape.min_in_sync))]
        servers = [server.host for server in self.group.name_servers]
        chance.shuffle(servers)
        island = {leader.host, *here, *servers[: chance.randrange(1, len(servers))]}
        assert REGISTER not in island
        return island
