"""One run of a group in which an operator rolls changes out while everything else goes wrong as in `groupplan`.

One member after the other is stopped or killed, and its next process is as wanted; when all are, something else is
wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from simulation.groupplan import GroupRun

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

T = TypeVar("T")
_STOPS_S = 5.0  # then anyone who stops in order is killed
_LOOK_S = 0.1
_AWAY_S = (0.1, 0.5, 3.0)
_NEXT_MEMBER_S = (0.1, 2.0, 5.0)
_NEXT_CHANGE_S = (0.5, 4.0)


class RollRun(GroupRun, Generic[T]):
    """One seed; `_rolled` has what each member is, by host."""

    def _as_begun(self, member: GroupMember) -> T:
        raise NotImplementedError

    def _choices(self) -> list[T]:
        raise NotImplementedError

    def _make(self, member: GroupMember, wanted: T) -> None:
        """Its next process is so; there is none now."""
        raise NotImplementedError

    def _is_wanted(self, wanted: T) -> None:
        """A roll begins, or is over."""

    def _go_wrong(self, producers: list[Producer]) -> None:
        self._rolled = {one.host: self._as_begun(one) for one in self.group.members}
        self._is_over = False
        self.world.after(self.world.chance.uniform(*_NEXT_CHANGE_S), self._change)
        super()._go_wrong(producers)
        self._is_over = True

    def _change(self) -> None:
        """Want something else."""
        former = set(self._rolled.values())
        wanted = self.world.chance.choice([one for one in self._choices() if {one} != former])
        self._faults.count += 1
        self.world.say(f"wanted is now: {wanted}")
        members = self.group.members[:]
        self.world.chance.shuffle(members)
        self._is_wanted(wanted)
        self._roll(wanted, members)

    def _roll(self, wanted: T, members: list[GroupMember]) -> None:
        """Make these members so, one after the other."""
        if self._is_over:
            return
        if not members:
            self._is_wanted(wanted)
            self.world.after(self.world.chance.uniform(*_NEXT_CHANGE_S), self._change)
            return
        member = members.pop()
        if self.world.chance.random() < 0.5:
            member.stop(for_good=True)
            self._until_gone(member, wanted, members, self.world.now + _STOPS_S)
        else:
            self._until_gone(member, wanted, members, self.world.now)

    def _until_gone(self, member: GroupMember, wanted: T, members: list[GroupMember], until_s: float) -> None:
        if member.is_alive and self.world.now < until_s:
            self.world.after(_LOOK_S, lambda: self._until_gone(member, wanted, members, until_s))
            return
        member.kill()
        self._make(member, wanted)
        self.world.say(f"{member.host}: its next process is {wanted}")
        self._rolled[member.host] = wanted
        chance = self.world.chance
        self.world.after(chance.choice(_AWAY_S), member.start)
        self.world.after(chance.choice(_NEXT_MEMBER_S), lambda: self._roll(wanted, members))
