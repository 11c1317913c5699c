"""One run of a group under standing faults: each stays until producers are answered all the same, and then ends.

Enough members can serve under each of them, so somebody has to lead whose messages are acknowledged within three times
the time of suspicion.  The rest is as in `groupplan`: nothing acknowledged is lost, and in the end all logs are equal.

    gone        the master's process is gone, and every store takes ten times the time of suspicion to open
    hung        the same, and a member that is promoted does not begin to serve for as long as the fault lasts
    apart       the master reaches register, coordinators and clients, but no slave, and no slave reaches it
    deaf        the master hears everybody but its slaves, which hear it
    unheard     no slave hears its master, and it hears them
    half        the master does not hear one of its slaves
    some        the master keeps one slave too few, and those that it lost reach everybody else; of members that can be
                missed one is gone
    stuck       the disk of a slave hangs
    full        the master's disk has no room
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.failover.notes import HAND_OVER_AGAIN_S
from simulation.groupworld import SUSPECT_S, Shape
from simulation.ledplan import PROMISED_S, LedRun
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_FAULTS = 4
_STANDS_S = 2 * PROMISED_S
_CLIENTS_S = 6.0  # until a producer has given up a question to a member that hangs, and found the new master
_QUIET_S = 60.0
_OPENING_S = 10 * SUSPECT_S
_HUNG_S = 3600.0
_AWAY_S = 2 * SUSPECT_S


class StandingRun(LedRun):
    """One seed."""

    _handed_s = -HAND_OVER_AGAIN_S

    def _shape(self, shape: Shape) -> Shape:
        members = max(3, shape.members)
        least = min(max(2, shape.min_in_sync), members - 1)
        return replace(shape, members=members, is_sync_master=True, min_in_sync=least)

    def _go_wrong(self, producers: list[Producer]) -> None:
        for _ in range(_FAULTS):
            leader = self.group.leader()
            if leader is None:
                raise Broken("nobody leads although nothing is wrong")
            masters = (self._gone, self._hung, self._full)
            ways = (self._apart, self._deaf, self._unheard, self._half, self._some, self._some)
            fault = self.world.chance.choice((*masters, *ways, self._stuck))
            name = fault.__name__.strip("_")
            self.world.say(f"from now on: {name}, {leader.host}")
            self._faults.count += 1
            later_s = fault(leader)
            self._somebody_leads(name, _STANDS_S + later_s, PROMISED_S + later_s)
            self._until_answered(producers, _CLIENTS_S, f"the fault {name!r}")
            if fault == self._full:
                self._handed_s = self.world.now
            self._undo()

    def _undo(self) -> None:
        for member in self.group.members:
            if member.delays.begin_s:
                member.kill()  # what hangs goes on hanging
            member.delays.opening_s = member.delays.begin_s = 0.0
        self.group.calm()
        if not self.world.run(self.world.now + _QUIET_S, self._is_whole):
            raise Broken(f"not everybody was in sync again within {_QUIET_S:g} s after a fault")
        self._check()

    def _is_whole(self) -> bool:
        record = self.group.service.record
        is_led = record is not None and record.holder is not None
        is_set = is_led and record is not None and len(record.in_sync) == self.group.shape.members
        # The register knows only later of a member that was killed a moment ago.
        return bool(self.world.problems) or (is_set and all(member.is_serving for member in self.group.members))

    # -- faults: each begins here and says for how much longer than promised the group may be without a master

    def _gone(self, leader: GroupMember) -> float:
        for member in self.group.members:
            member.delays.opening_s = _OPENING_S
        leader.kill()
        return 0.0

    def _hung(self, leader: GroupMember) -> float:
        self.world.chance.choice(self._slaves_of(leader)).delays.begin_s = _HUNG_S
        leader.kill()
        self.world.after(_AWAY_S, leader.start)  # two of the three have to be there
        return 0.0

    def _apart(self, leader: GroupMember) -> float:
        return self._deaf(leader) + self._unheard(leader)

    def _deaf(self, leader: GroupMember) -> float:
        for member in self._slaves_of(leader):
            self.group.network.cut(member.host, leader.host)
        return 0.0

    def _unheard(self, leader: GroupMember) -> float:
        for member in self._slaves_of(leader):
            self.group.network.cut(leader.host, member.host)
        return 0.0

    def _half(self, leader: GroupMember) -> float:
        self.group.network.cut(self.world.chance.choice(self._slaves_of(leader)).host, leader.host)
        return 0.0

    def _some(self, leader: GroupMember) -> float:
        shape, slaves = self.group.shape, self._slaves_of(leader)
        self.world.chance.shuffle(slaves)
        lost = slaves[shape.min_in_sync - 2 :]
        if shape.members - 1 > shape.min_in_sync:
            lost[0].kill()
        for member in lost:
            self.group.network.cut(member.host, leader.host)
            self.group.network.cut(leader.host, member.host)
        return 0.0

    def _stuck(self, leader: GroupMember) -> float:
        self.world.chance.choice(self._slaves_of(leader)).hang_disk()
        return 0.0

    def _full(self, leader: GroupMember) -> float:
        leader.fill_disk(0)
        # The last handover for this reason may have been a moment ago.
        return max(0.0, self._handed_s + HAND_OVER_AGAIN_S - self.world.now)

    def _slaves_of(self, leader: GroupMember) -> list[GroupMember]:
        return [member for member in self.group.members if member is not leader]
