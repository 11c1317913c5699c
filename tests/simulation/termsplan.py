"""One run of a group whose terms change while everything else goes wrong as in `groupplan`.

An operator rolls a change out: one member after the other is stopped or killed, and its next process has the new role
and minInSync.  As long as not all of them have, coordinators go by the weakest terms of all, as the operator's loop
does (`gantry_operator.api.terms`), and each other policy is another coordinator that knows nothing.

    SYNC_MASTER, 2      waits for nobody: one promise silences the former master
    SYNC_MASTER, 1      a master may be alone in the set, and then acknowledges until its permit ends
    ASYNC_MASTER, 1     a master answers alone; what it did not confirm may go with it
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gantry.broker.config import Role
from simulation.groupplan import GroupRun
from simulation.groupworld import Shape

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_STOPS_S = 5.0  # then whoever stops in order is killed
_LOOK_S = 0.1
_AWAY_S = (0.1, 0.5, 3.0)
_NEXT_MEMBER_S = (0.1, 2.0, 5.0)
_NEXT_CHANGE_S = (0.5, 4.0)


class Terms(NamedTuple):
    """Of one member, or of whoever watches; weaker ones are less."""

    is_sync: bool
    min_in_sync: int


_ALL = (Terms(True, 2), Terms(True, 1), Terms(False, 1))


class TermsRun(GroupRun):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        first = self.world.chance.choice(_ALL)
        return replace(shape, members=3, is_sync_master=first.is_sync, min_in_sync=first.min_in_sync)

    def _go_wrong(self, producers: list[Producer]) -> None:
        shape = self.group.shape
        self._terms = {one.host: Terms(shape.is_sync_master, shape.min_in_sync) for one in self.group.members}
        self._is_over = False
        self.world.after(self.world.chance.uniform(*_NEXT_CHANGE_S), self._change)
        super()._go_wrong(producers)
        self._is_over = True

    def _change(self) -> None:
        """Want other terms."""
        former = set(self._terms.values())
        wanted = self.world.chance.choice([one for one in _ALL if {one} != former])
        self._faults.count += 1
        self.world.say(f"other terms are wanted: {wanted}")
        members = self.group.members[:]
        self.world.chance.shuffle(members)
        self._watch(wanted)
        self._roll(wanted, members)

    def _roll(self, wanted: Terms, members: list[GroupMember]) -> None:
        """Have these members run on the terms, one after the other."""
        if self._is_over:
            return
        if not members:
            self._watch(wanted)
            self.world.after(self.world.chance.uniform(*_NEXT_CHANGE_S), self._change)
            return
        member = members.pop()
        if self.world.chance.random() < 0.5:
            member.stop(for_good=True)
            self._until_gone(member, wanted, members, self.world.now + _STOPS_S)
        else:
            self._until_gone(member, wanted, members, self.world.now)

    def _until_gone(self, member: GroupMember, wanted: Terms, members: list[GroupMember], until_s: float) -> None:
        if member.is_alive and self.world.now < until_s:
            self.world.after(_LOOK_S, lambda: self._until_gone(member, wanted, members, until_s))
            return
        member.kill()
        member.set_terms(Role.SYNC_MASTER if wanted.is_sync else Role.ASYNC_MASTER, wanted.min_in_sync)
        self.world.say(f"{member.host}: its next process has the terms {wanted}")
        self._terms[member.host] = wanted
        chance = self.world.chance
        self.world.after(chance.choice(_AWAY_S), member.start)
        self.world.after(chance.choice(_NEXT_MEMBER_S), lambda: self._roll(wanted, members))

    def _watch(self, wanted: Terms) -> None:
        """Watch on the weakest terms of all."""
        every = [wanted, *self._terms.values()]
        weakest = Terms(all(one.is_sync for one in every), min(one.min_in_sync for one in every))
        self.witness.min_in_sync = weakest.min_in_sync
        for watcher in self.group.watchers:
            watcher.set_terms(weakest.is_sync, weakest.min_in_sync)
