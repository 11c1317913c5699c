"""Watches the group's register while a member's broker runs.

    a master   renews its lease and changes the in-sync set (`replication.lease_renewal`); hands over.  When the
               register names another holder, or none, it steps down: waiting producers get "outcome unknown"
    others     read which member to follow; claim the next epoch when the register names this member's former process

When the register gives this member another role, the broker starts again in that role (`member_register`).  A sealed
master waits until another member leads, because the log offsets in its answers have to stay valid.

The register is read every `renew_every_s`, at once after a nudge, and more often when a new master is likely: after a
link ended, or after the next epoch was promised for a handover.  Then it is read twenty times a second for two seconds,
and four times a second up to the twentieth second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.errors import OutcomeUnknownError, StoreError
from gantry.replication.hastate import MemberRole
from gantry.replication.record import RegisterRecord
from gantry.replication.register import RegisterError
from gantry.replication.role_decision import Follow, Lead
from gantry.replication.timers import derive_serving_waits
from gantry.transport.tasks import essential

if TYPE_CHECKING:
    from gantry.broker.role.member_register import MemberRegister
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.broker.settings.sections import ReplicationConfig
    from gantry.replication.lease_renewal import LeaseRenewal


@dataclass(frozen=True, slots=True)
class WatcherHooks:
    """Functions of the broker that the watcher calls.

    restart          start again in this process, for this reason
    say              log this cause and text, at most once a minute
    stand_as_slave   register at the name servers as a slave of this epoch
    is_stalled       whether the disk hangs, so that another member should lead
    """

    restart: Callable[[str], None]
    say: Callable[[str, str], object]
    stand_as_slave: Callable[[int], None]
    is_stalled: Callable[[], bool]


class RegisterWatcher:
    """Watches the register for one member; loop thread only. lease_renewal: of a master, None for a slave."""

    def __init__(
        self,
        register: MemberRegister,
        role: MasterRole | SlaveRole,
        promise_writer: PromiseWriter,
        config: ReplicationConfig,
        outside: WatcherHooks,
        lease_renewal: LeaseRenewal | None,
    ) -> None:
        self.lease_renewal = lease_renewal
        self.why = ""  # why this member neither leads nor follows
        self.hurry = register.hurry
        self._register = register
        self._role = role
        self._promise_writer = promise_writer
        self._config = config
        self._outside = outside
        self._stood_as = 0  # the epoch of the last registration as a slave
        self._running: asyncio.Task[None] | None = None

    def start(self, fail: Callable[[str], None]) -> None:
        """Start to watch; `fail` is called with the reason when the process has to end."""
        self._running = essential(self._run(), "looking at the register", fail)

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        while True:
            self._register.note_reading()
            begun_s = asyncio.get_running_loop().time()
            if self._leads:
                await self._renew()
            else:
                await self._look()
            await self._register.wait(self._pause_s(asyncio.get_running_loop().time() - begun_s))

    @property
    def _leads(self) -> bool:
        return self._role.status() is MemberRole.MASTER

    def _pause_s(self, took_s: float) -> float:
        """Return how long to wait after a round that took so long; a master begins a renewal every period."""
        renew_every_s = self._config.renew_every_s
        if self._leads and self.lease_renewal is not None:
            again_s = derive_serving_waits(renew_every_s).again_s
            return again_s if self.lease_renewal.is_open else max(again_s, renew_every_s - took_s)
        return renew_every_s if self._role.status() is MemberRole.SLAVE else self._register.pause_s(renew_every_s)

    async def _renew(self) -> None:
        lease_renewal = self.lease_renewal
        assert lease_renewal is not None
        if self._outside.is_stalled():
            await lease_renewal.look()
        else:
            await lease_renewal.renew()
        if lease_renewal.why:
            self._outside.say("register", f"the register could not be renewed: {lease_renewal.why}")
        if lease_renewal.is_lost:
            self.lose()

    def lose(self) -> None:
        """Step down, and read the register often: this member is not the master any more."""
        if self._leads:
            self._role.step_down(self._register.member.epochs.last_epoch + 1)
        self._register.expect_master()

    async def _look(self) -> None:
        try:
            wanted, _ = await self._register.consult(self._note)
        except (RegisterError, OutcomeUnknownError) as error:
            self.why = f"the register does not say who leads: {error}"
            self._outside.say("register", self.why)
            return
        self.why = ""
        if isinstance(wanted, Lead):
            self._outside.restart(f"the register names this member the master of epoch {wanted.epoch}")
        elif isinstance(wanted, Follow):
            self._follow(wanted)
        else:
            self.why, self._register.master = wanted.reason, ""
            self._outside.say("role", wanted.reason)

    def _follow(self, wanted: Follow) -> None:
        members, role = self._config.members, self._role
        if isinstance(role, MasterRole):
            self._outside.restart(f"member {wanted.ordinal} leads in epoch {wanted.epoch}")
            return
        self._register.master = members[wanted.ordinal] if wanted.ordinal < len(members) else ""
        if wanted.epoch > self._stood_as:
            # Name servers then remove brokerId 0 from a member with a lower epoch.
            self._stood_as = wanted.epoch
            self._outside.stand_as_slave(wanted.epoch)
        role.hurry()

    def _note(self, record: RegisterRecord) -> None:
        if isinstance(self._role, SlaveRole):
            number = self._register.new_number(record)
            if number is not None:
                self._promise_writer.number(number, self._numbered)
            self._role.leave_lower(record.epoch)

    def _numbered(self, error: StoreError | None) -> None:
        if error is not None:
            self._outside.say("number", f"the number of this disk could not be kept: {error}")
        self.hurry()
