"""Hands a group over: the master stops writing, makes another member promise the next epoch, and names it the master.

    1  the register has just accepted a renewal; messages are refused, with a remark to try again soon
    2  the target has the master's whole log and tables, consumer offsets too; then nothing is served any more.  A
       master that stops takes the first member of the set of which this is true, because the disk of one may hang.
       Slower disks, its own too, are waited for a moment only, so that producers read SEND_OK
    3  the target has the promise of the next epoch on its disk: from here on it accepts nothing of this epoch
    4  the register names the target, by one compare-and-set; a master that stops leaves the set with it if all others
       are connected
    5  this member stops, and follows

A failure before step 3 changes nothing.  After it the target has left this epoch, so a new one has to begin: the broker
starts again and claims it, or finds that the register names the target.  No operator is needed, and every step is
bounded by the deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.replication.haapi import Answer, refuse
from gantry.replication.lease_renewal import Handed
from gantry.replication.record import Holder
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry.append.admit import WriteGate
    from gantry.broker.role.master_role import MasterRole
    from gantry.broker.role.register_watcher import RegisterWatcher
    from gantry.clock import Clock
    from gantry.replication.attendance import Attendance

GATE_HANDOVER = "the group is handed over"
_LOOK_S = 0.005
_CONFIRM_S = 1.0


class Handover:
    """Hands over one master's group, at most once at a time; loop thread only."""

    def __init__(
        self, group: MasterRole, watcher: RegisterWatcher, gate: WriteGate, clock: Clock, restart: Callable[[str], None]
    ) -> None:
        self._group = group
        self._watcher = watcher
        self._gate = gate
        self._clock = clock
        self._restart = restart
        self._is_under_way = False
        self._is_decided = False  # this member will not continue in this epoch

    @property
    def is_disk_late(self) -> bool:
        """Whether this member's own disk makes acknowledgements late."""
        return self._group.is_disk_late

    def heirs(self) -> list[int]:
        """Return the ordinals of the members that could lead, the one with the longest log first."""
        able = sorted(self._group.tracker.slaves.values(), key=lambda slave: (-slave.held, slave.member.ordinal))
        return [slave.member.ordinal for slave in able if not self._why_not(slave.member.ordinal)]

    async def to(self, targets: Sequence[int], within_s: float, is_leaving: bool = False) -> Answer | None:
        """Hand over to the first of these ordinals that has everything; is_leaving: this member leaves the set.

        None: done; else the refusal.
        """
        late = next((why for target in targets if (why := self._why_not(target))), "")
        if late:
            return refuse(409, late)
        self._is_under_way = True
        remark = "service not available now: the group is handed over to another member; try again in a moment"
        self._gate.shut(GATE_HANDOVER, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
        try:
            return await self._hand_over(targets, self._clock.monotonic() + within_s, is_leaving)
        finally:
            self._is_under_way = False
            if not self._is_decided:
                self._gate.reopen(GATE_HANDOVER)
                if self._group.serving_lease is not None and not self._group.is_sealed:
                    self._group.serving_lease.go_on()

    def _why_not(self, target: int) -> str:
        group = self._group
        if group.is_sealed or self._watcher.lease_renewal is None:
            return "this member does not lead"
        if self._is_under_way:
            return "a handover is under way"
        slave = group.tracker.slaves.get(target)
        if slave is None or not slave.is_connected:
            return f"member {target} does not follow this one"
        if slave.member not in group.tracker.insync.recorded:
            return f"member {target} is not in sync"
        return ""

    async def _hand_over(self, targets: Sequence[int], deadline_s: float, is_leaving: bool) -> Answer | None:
        group, lease_renewal = self._group, self._watcher.lease_renewal
        assert lease_renewal is not None and group.serving_lease is not None
        await lease_renewal.renew()
        if lease_renewal.why or lease_renewal.is_lost:
            why = lease_renewal.why
            return refuse(503, f"the register does not take the renewal, nor would it the handover: {why}")
        slave = await self._first_equal(targets, deadline_s)
        if slave is not None:
            await self._until(lambda: group.is_all_confirmed, min(deadline_s, self._clock.monotonic() + _CONFIRM_S))
            # Offsets that consumers commit from here on would be lost with this epoch.
            group.serving_lease.end()
            slave = await self._first_equal(targets, deadline_s)
        if slave is None:
            named = " and ".join(map(str, targets))
            return refuse(503, f"member {named} did not catch up in time, or went; this one leads on")
        is_leaving = is_leaving and self._is_whole()
        self._is_decided = True
        target = slave.member.ordinal
        promised = group.ask_promise(target)
        if not await self._until(lambda: promised.done() or not slave.is_connected, deadline_s) or not promised.done():
            self._restart("a member that this master wanted to hand over to may have promised the next epoch")
            return refuse(503, f"member {target} did not answer in time; this one claims the next epoch")
        handed = await lease_renewal.hand_over(Holder(slave.member, slave.process), is_leaving)
        self._watcher.lose()
        if handed is Handed.DONE:
            return None
        self._restart(f"the handover is {handed.value}: {lease_renewal.why}")
        return refuse(503, f"the register did not take the handover, or did not say so: {lease_renewal.why}")

    def _is_whole(self) -> bool:
        """Return whether every other member of the set is connected, so that this member's copy is not needed."""
        tracker = self._group.tracker
        connected = {slave.member for slave in tracker.slaves.values() if slave.is_connected}
        return len(connected & tracker.insync.recorded) >= len(tracker.insync.recorded) - 1

    async def _first_equal(self, targets: Sequence[int], deadline_s: float) -> Attendance | None:
        """Return the first of these members that has everything; None: none in time, or all of them went."""
        group, slaves = self._group, self._group.tracker.slaves
        group.tell_tables()
        equal: list[int] = []

        def is_decided() -> bool:
            equal[:] = [target for target in targets if group.is_equal(target)]
            return bool(equal) or not any(slaves[target].is_connected for target in targets)

        await self._until(is_decided, deadline_s)
        return slaves[equal[0]] if equal and not group.is_sealed else None

    async def _until(self, is_so: Callable[[], bool], deadline_s: float) -> bool:
        while not is_so():
            if self._clock.monotonic() >= deadline_s or self._group.is_sealed:
                return False
            await asyncio.sleep(_LOOK_S)
        return True
