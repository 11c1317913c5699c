"""Handing a group over: the master stops writing, has another member promise the next epoch, and names it.

    1  the register has just taken a renewal; messages are refused, with a remark that says for how long
    2  the target has everything that we have: the log, and the tables; then nothing is served any more
    3  it has the promise of the next epoch on its disk: from here on it takes nothing of ours
    4  the register names it: one compare-and-set, with which a master that stops leaves the set if all others are there
    5  this member stops, and follows

What goes wrong before step 3 leaves everything as it was.  From then on the target is out of this epoch, so whatever
happens a new one has to begin: the broker starts anew and claims it, or finds that the register names the target after
all.  No operator takes part, and every step is bounded by the deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.replication.haapi import Answer, refuse
from gantry.replication.record import Holder
from gantry.replication.tenure import Handed
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry.append.admit import WriteGate
    from gantry.broker.role.mastering import Mastering
    from gantry.broker.role.office import Office
    from gantry.clock import Clock
    from gantry.replication.mastery import Attendance

GATE_HANDOVER = "the group is handed over"
_LOOK_S = 0.005


class Handover:
    """One member's, at most one at a time; loop thread only."""

    def __init__(
        self, group: Mastering, office: Office, gate: WriteGate, clock: Clock, restart: Callable[[str], None]
    ) -> None:
        self._group = group
        self._office = office
        self._gate = gate
        self._clock = clock
        self._restart = restart
        self._is_under_way = False
        self._is_decided = False  # this member will not go on in this epoch

    def heir(self) -> int | None:
        """Who could lead at once: the one that is furthest, the first among equals; None: nobody."""
        group = self._group
        able = [
            slave
            for slave in group.mastery.slaves.values()
            if slave.is_connected and slave.member in group.mastery.insync.recorded
        ]
        best = min(able, key=lambda slave: (-slave.held, slave.member.ordinal), default=None)
        return None if best is None or self._why_not(best.member.ordinal) else best.member.ordinal

    async def to(self, target: int, within_s: float, is_leaving: bool = False) -> Answer | None:
        """Hand over to this ordinal, as one that stays or that stops afterwards; None when it is done."""
        late = self._why_not(target)
        if late:
            return refuse(409, late)
        self._is_under_way = True
        remark = f"service not available now: the group is handed over to member {target}; try again in a moment"
        self._gate.shut(GATE_HANDOVER, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
        try:
            return await self._hand_over(target, self._clock.monotonic() + within_s, is_leaving)
        finally:
            self._is_under_way = False
            if not self._is_decided:
                self._gate.reopen(GATE_HANDOVER)
                if self._group.permit is not None and not self._group.is_sealed:
                    self._group.permit.go_on()

    def _why_not(self, target: int) -> str:
        group = self._group
        if group.is_sealed or self._office.tenure is None:
            return "this member does not lead"
        if self._is_under_way:
            return "a handover is under way"
        slave = group.mastery.slaves.get(target)
        if slave is None or not slave.is_connected:
            return f"member {target} does not follow this one"
        if slave.member not in group.mastery.insync.recorded:
            return f"member {target} is not in sync"
        return ""

    async def _hand_over(self, target: int, deadline_s: float, is_leaving: bool) -> Answer | None:
        group, tenure = self._group, self._office.tenure
        assert tenure is not None and group.permit is not None
        await tenure.renew()
        if tenure.why or tenure.is_lost:
            return refuse(503, f"the register does not take the renewal, nor would it the handover: {tenure.why}")
        slave = group.mastery.slaves[target]
        is_equal = await self._catches_up(slave, deadline_s)
        if is_equal:
            # What readers commit from here on would be lost with this mastership.
            group.permit.end()
            is_equal = await self._catches_up(slave, deadline_s)
        if not is_equal:
            return refuse(503, f"member {target} did not catch up in time, or went; this one leads on")
        is_leaving = is_leaving and self._is_whole()
        self._is_decided = True
        promised = group.ask_promise(target)
        if not await self._until(lambda: promised.done() or not slave.is_connected, deadline_s) or not promised.done():
            self._restart("a member that this master wanted to hand over to may have promised the next epoch")
            return refuse(503, f"member {target} did not answer in time; this one claims the next epoch")
        handed = await tenure.hand_over(Holder(slave.member, slave.process), is_leaving)
        self._office.lose()
        if handed is Handed.DONE:
            return None
        self._restart(f"the handover is {handed.value}: {tenure.why}")
        return refuse(503, f"the register did not take the handover, or did not say so: {tenure.why}")

    def _is_whole(self) -> bool:
        """Whether everybody else of the set is there: then nobody needs a copy that stops."""
        mastery = self._group.mastery
        connected = {slave.member for slave in mastery.slaves.values() if slave.is_connected}
        return len(connected & mastery.insync.recorded) >= len(mastery.insync.recorded) - 1

    async def _catches_up(self, slave: Attendance, deadline_s: float) -> bool:
        group, place = self._group, slave.member.ordinal
        group.tell_tables()
        is_in_time = await self._until(lambda: group.is_equal(place) or not slave.is_connected, deadline_s)
        return is_in_time and slave.is_connected

    async def _until(self, is_so: Callable[[], bool], deadline_s: float) -> bool:
        while not is_so():
            if self._clock.monotonic() >= deadline_s or self._group.is_sealed:
                return False
            await asyncio.sleep(_LOOK_S)
        return True
