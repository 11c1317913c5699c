"""One run of a group with two faults, one after the other, and a heal between; several times.

At no moment more than one member is lost, and every acknowledged message is on minInSync of them.  So who has all
of them may lead after the second fault, whatever the first one and its heal left in the register.

    first     zones are cut, with register and coordinators on either side; a member is gone, without power, its disk
              hangs or has no room; for a while
    then      all that is over, for a moment or for some seconds
    second    a member is lost, until the group has had a master that works for long enough
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.groupworld import Shape
from simulation.ledplan import LedRun
from simulation.register import HOST as REGISTER
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_PAIRS = 3
_FIRST_S = (0.5, 3.0, 7.0, 7.0, 12.0)
_HEALED_S = (0.0, 0.0, 0.0, 0.3, 2.0, 5.0)
_STANDS_S = 15.0
_CLIENTS_S = 8.0  # until a producer has found the new master
_QUIET_S = 90.0


class TwiceRun(LedRun):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        members = max(3, shape.members)
        least = min(max(2, shape.min_in_sync), members - 1)
        return replace(shape, members=members, is_sync_master=True, min_in_sync=least, is_sync_flush=True)

    def _go_wrong(self, producers: list[Producer]) -> None:
        chance = self.world.chance
        for _ in range(_PAIRS):
            first = chance.choice((*4 * [self._zones], self._gone, self._dark, self._full, self._hung))
            told = first(self._settled_leader())
            self.world.say(f"first: {told}")
            self._run(chance.choice(_FIRST_S))
            self.group.calm()
            self.world.say("the first fault is over")
            self._run(chance.choice(_HEALED_S))
            lost = self._lost()
            self.world.say(f"second: {lost.host} is lost")
            lost.kill()
            self._faults.count += 2
            name = f"first {told}, and then {lost.host} lost"
            self._somebody_leads(name, _STANDS_S + self.group.shape.promised_s)
            self._until_answered(producers, _CLIENTS_S, name)
            self.group.calm()
            if not self.world.run(self.world.now + _QUIET_S, self._is_whole):
                raise Broken(f"not everybody was in sync again within {_QUIET_S:g} s after {name}")
            self._check()

    def _is_whole(self) -> bool:
        record = self.group.service.record
        is_set = record is not None and record.holder is not None and len(record.in_sync) == self.group.shape.members
        return bool(self.world.problems) or (is_set and all(member.is_serving for member in self.group.members))

    def _lost(self) -> GroupMember:
        chance, leader = self.world.chance, self.group.leader()
        return leader if leader is not None and chance.random() < 0.7 else chance.choice(self.group.members)

    # -- the first one: begins, and says what it is

    def _zones(self, leader: GroupMember) -> str:
        chance = self.world.chance
        others = [member.host for member in self.group.members if member is not leader]
        chance.shuffle(others)
        here = {leader.host, *others[: chance.randrange(len(others))]}
        there = {member.host for member in self.group.members} - here
        watchers = {watcher.host for watcher in self.group.watchers}
        (here if chance.random() < 0.2 else there).update({REGISTER, *watchers})
        for one in here:
            for other in there:
                self.group.network.cut(one, other)
                self.group.network.cut(other, one)
        return f"{sorted(here)} are cut from {sorted(there)}"

    def _gone(self, leader: GroupMember) -> str:
        return self._strike(leader, "is gone", lambda member: member.kill())

    def _dark(self, leader: GroupMember) -> str:
        return self._strike(leader, "has no power", lambda member: member.cut_power())

    def _full(self, leader: GroupMember) -> str:
        return self._strike(leader, "has a full disk", lambda member: member.fill_disk(0))

    def _hung(self, leader: GroupMember) -> str:
        return self._strike(leader, "has a disk that hangs", lambda member: member.hang_disk())

    def _strike(self, leader: GroupMember, how: str, strike: Callable[[GroupMember], None]) -> str:
        member = self.world.chance.choice((leader, self.world.chance.choice(self.group.members)))
        strike(member)
        return f"{member.host} {how}"
