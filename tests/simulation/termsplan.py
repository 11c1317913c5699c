"""One run of a group whose terms change while everything else goes wrong as in `groupplan`.

An operator rolls a change out (`rollplan`): each member's next process has the new role and minInSync.  As long as not
all of them have, coordinators go by the weakest terms of all, as the operator's loop does
(`gantry_operator.api.terms`), and each other policy is another coordinator that knows nothing.

    SYNC_MASTER, 2      waits for nobody: one promise silences the former master
    SYNC_MASTER, 1      a master may be alone in the set, and then acknowledges until its serving lease ends
    ASYNC_MASTER, 1     a master answers alone; what it did not confirm may go with it
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gantry.broker.settings.config import Role
from simulation.groupworld import Shape
from simulation.rollplan import RollRun

if TYPE_CHECKING:
    from simulation.groupmember import GroupMember


class Terms(NamedTuple):
    """Of one member, or of anyone who watches; weaker ones are less."""

    is_sync: bool
    min_in_sync: int


_ALL = (Terms(True, 2), Terms(True, 1), Terms(False, 1))


class TermsRun(RollRun[Terms]):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        first = self.world.chance.choice(_ALL)
        return replace(shape, members=3, is_sync_master=first.is_sync, min_in_sync=first.min_in_sync)

    def _as_begun(self, member: GroupMember) -> Terms:
        del member
        return Terms(self.group.shape.is_sync_master, self.group.shape.min_in_sync)

    def _choices(self) -> list[Terms]:
        return list(_ALL)

    def _make(self, member: GroupMember, wanted: Terms) -> None:
        member.set_terms(Role.SYNC_MASTER if wanted.is_sync else Role.ASYNC_MASTER, wanted.min_in_sync)

    def _is_wanted(self, wanted: Terms) -> None:
        """Watch on the weakest terms of all."""
        every = [wanted, *self._rolled.values()]
        weakest = Terms(all(one.is_sync for one in every), min(one.min_in_sync for one in every))
        self.witness.min_in_sync = weakest.min_in_sync
        for watcher in self.group.watchers:
            watcher.set_terms(weakest.is_sync, weakest.min_in_sync)
