"""A run that looks on while a fault stands: no time without a master that takes and confirms messages is too long.

`standingplan` and `struckplan` choose the faults.  The promise is the group's, so it is looked at where the group is:
how long producers need to find a new master comes on top of it and is no part of it.
"""

from __future__ import annotations

from gantry.broker.role.master_role import MasterRole
from simulation.groupplan import GroupRun
from simulation.groupworld import SUSPECT_S
from simulation.world import Broken

PROMISED_S = 3 * SUSPECT_S
_LOOK_S = 0.1


class LedRun(GroupRun):
    """One seed."""

    def _somebody_leads(self, fault: str, stands_s: float, without_s: float = PROMISED_S) -> None:
        """Look on for so long; Broken when for longer than `without_s` nobody leads who takes and confirms messages."""
        world, longest_s = self.world, 0.0
        well_s, end_s, confirmed = world.now, world.now + stands_s, -1
        while world.now < end_s:
            self._run(_LOOK_S)
            further = self._works(confirmed)
            if further >= 0:
                well_s, confirmed = world.now, further
            longest_s = max(longest_s, world.now - well_s)
            if longest_s > without_s:
                raise Broken(f"{fault}: for {without_s:g} s nobody led who takes and confirms messages")
        world.say(f"{fault}: at most {longest_s:.1f} s without a master that works")

    def _works(self, confirmed: int) -> int:
        """How far a master has confirmed its log, if it takes messages and confirms them; -1: there is none."""
        leader = self.group.leader()
        parts = leader.broker.parts if leader is not None and leader.broker is not None else None
        if leader is None or parts is None or not leader.is_serving or not isinstance(parts.group, MasterRole):
            return -1
        now = leader.confirmed
        is_working = now > confirmed or now == parts.store.written.offset
        return now if is_working and parts.gate.refusal is None else -1
