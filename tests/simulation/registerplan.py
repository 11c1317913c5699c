"""One run of a group whose register works in part, for as long as the run lasts.

    answers late     requests are carried out and answered after 0.1 s to 20 s, only writes or all of them
    reads only       every write is refused
    writes only      every read is refused

and beside it, where what the group needs still works, one member is lost for good: with late answers to writes a slave
or the master, since what a write did can be read.  Producers are answered in time all the same (`slowplan`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.register import Troubles
from simulation.slowplan import SECONDS, Fault, SlowRun

if TYPE_CHECKING:
    from simulation.groupmember import GroupMember


class RegisterRun(SlowRun):
    """One seed."""

    def _faults_of(self, leader: GroupMember) -> list[Fault]:
        chance = self.world.chance
        slave = chance.choice([member for member in self.group.members if member is not leader])
        seconds = chance.choice(SECONDS)
        late = self._troubled(Troubles(write_s=seconds))
        all_late = self._troubled(Troubles(read_s=seconds, write_s=seconds))
        return [
            Fault("the register takes reads only", self._troubled(Troubles(refuses="writes"))),
            Fault("the register takes writes only", self._troubled(Troubles(refuses="reads"))),
            Fault(f"the register answers after {seconds:g} s", all_late),
            Fault(f"the register answers writes after {seconds:g} s, a slave is gone", _both(late, slave.kill)),
            Fault(f"the register answers writes after {seconds:g} s, a slave stops", _both(late, _stop(slave))),
            Fault(f"the register answers writes after {seconds:g} s, the master is gone", _both(late, leader.kill)),
            Fault(f"the register answers writes after {seconds:g} s, the master stops", _both(late, _stop(leader))),
        ]

    def _troubled(self, troubles: Troubles) -> Callable[[], None]:
        return lambda: setattr(self.group.service, "troubles", troubles)


def _stop(member: GroupMember) -> Callable[[], None]:
    return lambda: member.stop(for_good=True)


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def begin() -> None:
        one()
        other()

    return begin
