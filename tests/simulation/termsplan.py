"""One run of a group whose terms change while everything else goes wrong as in `groupplan`.

A change is rolled out (`rollplan`): each member's next process has the new role and minInSync, and one of three has
other ones, by mistake and until the next change.  Coordinators are told whatever comes to a user's mind, often
something that no member says; each other policy is another coordinator that knows nothing.  They have to go by what the
members say and the register shows (`failover.agreement`).

    SYNC_MASTER, 2      waits for nobody: one promise silences the former master
    SYNC_MASTER, 1      a master may be alone in the set, and then acknowledges until its serving lease ends
    ASYNC_MASTER, 1     a master answers alone; what it did not confirm may go with it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gantry.broker.settings.config import Role
from simulation.groupworld import Shape
from simulation.rollplan import RollRun

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember


class Terms(NamedTuple):
    """Of one member, or of anyone who watches; weaker ones are less."""

    is_sync: bool
    min_in_sync: int


ALL_TERMS = (Terms(True, 2), Terms(True, 1), Terms(False, 1))
_MISTAKES = 0.3
_STRONGEST = ALL_TERMS[0]  # what a coordinator believed by default once


def weakest_of(every: Sequence[Terms]) -> Terms:
    """What members of these terms promise together."""
    return Terms(all(one.is_sync for one in every), min(one.min_in_sync for one in every))


class TermsRun(RollRun[Terms]):
    """One seed."""

    def _go_wrong(self, producers: list[Producer]) -> None:
        self._has = {one.host: self._as_begun(one) for one in self.group.members}
        super()._go_wrong(producers)

    def _shape(self, shape: Shape) -> Shape:
        first = self.world.chance.choice(ALL_TERMS)
        return replace(shape, members=3, is_sync_master=first.is_sync, min_in_sync=first.min_in_sync)

    def _as_begun(self, member: GroupMember) -> Terms:
        del member
        return Terms(self.group.shape.is_sync_master, self.group.shape.min_in_sync)

    def _choices(self) -> list[Terms]:
        return list(ALL_TERMS)

    def _make(self, member: GroupMember, wanted: Terms) -> None:
        chance = self.world.chance
        has = self._has[member.host] = chance.choice(ALL_TERMS) if chance.random() < _MISTAKES else wanted
        self.witness.min_in_sync = min(has.min_in_sync, *(one.min_in_sync for one in self._has.values()))
        member.set_terms(Role.SYNC_MASTER if has.is_sync else Role.ASYNC_MASTER, has.min_in_sync)

    def _is_wanted(self, wanted: Terms) -> None:
        """Tell the coordinators something."""
        for watcher in self.group.watchers:
            told = self.world.chance.choice((_STRONGEST, wanted, *ALL_TERMS))
            watcher.set_terms(told.is_sync, told.min_in_sync)
