"""One run of a group under standing faults: each stays until producers are answered all the same, and then ends.

Enough members can serve under each of them, so somebody has to lead whose messages are acknowledged within three times
the time of suspicion, and whatever a link needs to be given up and a member to be left out or taken in.  The rest is as
in `groupplan`: nothing acknowledged is lost, and in the end all logs are equal.

    gone        the master's process is gone, and every store takes ten times the time of suspicion to open
    hung        the same, and a member that is promoted does not begin to serve for as long as the fault lasts
    apart       the master reaches register, coordinators and clients, but no slave
    full        the master's disk has no room
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.failover.notes import HAND_OVER_AGAIN_S
from simulation.groupplan import GroupRun
from simulation.groupworld import SUSPECT_S, Shape
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_FAULTS = 4
_PROMISED_S = 3 * SUSPECT_S
_LINK_S, _CHANGE_S = 5.0, 4.0  # a silent link is given up; one member is taken in and another one left out
_CLIENTS_S = 6.0  # until a producer has given up a question to a member that hangs, and found the new master
_QUIET_S = 60.0
_OPENING_S = 10 * SUSPECT_S
_HUNG_S = 3600.0
_AWAY_S = 2 * SUSPECT_S


class StandingRun(GroupRun):
    """One seed."""

    _handed_s = -HAND_OVER_AGAIN_S

    def _shape(self, shape: Shape) -> Shape:
        return replace(shape, members=3, is_sync_master=True, min_in_sync=2)

    def _go_wrong(self, producers: list[Producer]) -> None:
        for _ in range(_FAULTS):
            leader = self.group.leader()
            if leader is None:
                raise Broken("nobody leads although nothing is wrong")
            fault = self.world.chance.choice((self._gone, self._hung, self._apart, self._full))
            self.world.say(f"from now on: {fault.__name__.strip('_')}, {leader.host}")
            patience_s = fault(leader)
            self._until_answered(producers, patience_s + _CLIENTS_S, f"the fault {fault.__name__.strip('_')!r}")
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
        return bool(self.world.problems) or (is_led and record is not None and len(record.in_sync) == 3)

    # -- faults: each begins here and says how long producers may wait

    def _gone(self, leader: GroupMember) -> float:
        for member in self.group.members:
            member.delays.opening_s = _OPENING_S
        leader.kill()
        return _PROMISED_S

    def _hung(self, leader: GroupMember) -> float:
        others = [member for member in self.group.members if member is not leader]
        self.world.chance.choice(others).delays.begin_s = _HUNG_S
        leader.kill()
        self.world.after(_AWAY_S, leader.start)  # two of the three have to be there
        return _PROMISED_S

    def _apart(self, leader: GroupMember) -> float:
        for member in self.group.members:
            if member is not leader:
                self.group.network.cut(leader.host, member.host)
                self.group.network.cut(member.host, leader.host)
        return _LINK_S + SUSPECT_S + _CHANGE_S

    def _full(self, leader: GroupMember) -> float:
        leader.fill_disk(0)
        # The last handover for this reason may have been a moment ago.
        return _PROMISED_S + max(0.0, self._handed_s + HAND_OVER_AGAIN_S - self.world.now)
