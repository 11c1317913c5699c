"""What a member does about its group's register while one life of its broker goes on.

    it leads      renews and changes the in-sync set (`replication.lease_renewal`); hands over; when somebody else
                  leads, or nobody, it is sealed: nothing is acknowledged, what waits hears "outcome unknown"
    it does not   reads whom to follow; claims the next epoch when the register names its former process

Whatever the register says that this life is not, the broker starts again and is (`startup_role`).  A sealed master
waits as it is until somebody leads, since the positions that it answered have to hold.

The register is read every `renew_every_s`, at once after a nudge, and more often when somebody is about to lead: a link
just ended, or the next epoch was promised to a master that wants to hand over.  Then it is read twenty times a second
for two seconds, as long as a planned change may take, and four times a second for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.errors import OutcomeUnknownError, StoreError
from gantry.replication.hastate import Role as MemberRole
from gantry.replication.record import Record
from gantry.replication.register import RegisterError
from gantry.replication.role_decision import Follow, Lead
from gantry.transport.tasks import essential

if TYPE_CHECKING:
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.broker.role.register_news import RegisterNews
    from gantry.broker.role.register_reader import RegisterReader
    from gantry.replication.lease_renewal import LeaseRenewal


@dataclass(frozen=True, slots=True)
class Rules:
    """How often, and where members are."""

    renew_every_s: float
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """What the rest of the broker does: step down in an epoch; start again; say something once a minute; register at
    the name servers as a slave of this epoch.  is_stalled: the disk hangs, so that another member should lead.
    """

    step_down: Callable[[int], None]
    restart: Callable[[str], None]
    say: Callable[[str, str], object]
    stand_as_slave: Callable[[int], None]
    is_stalled: Callable[[], bool]


class RegisterWatcher:
    """Loop thread only; run() is a task of the broker.  lease_renewal: of a master, None of a slave."""

    def __init__(
        self,
        reader: RegisterReader,
        role: MasterRole | SlaveRole,
        news: RegisterNews,
        promise_writer: PromiseWriter,
        rules: Rules,
        outside: Outside,
        lease_renewal: LeaseRenewal | None,
    ) -> None:
        self.lease_renewal = lease_renewal
        self.why = ""  # this member does neither lead nor follow
        self.hurry = news.hurry
        self._reader = reader
        self._role = role
        self._news = news
        self._promise_writer = promise_writer
        self._rules = rules
        self._outside = outside
        self._stood_as = 0  # the epoch that name servers were told
        self._running: asyncio.Task[None] | None = None

    def start(self, fail: Callable[[str], None]) -> None:
        """Begin to look; fail: the process has to end, and why."""
        self._running = essential(self._run(), "looking at the register", fail)

    async def stop(self) -> None:
        """Look no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        while True:
            self._news.reading()
            if self._leads:
                await self._renew()
            else:
                await self._look()
            await self._news.wait(self._pause_s())

    @property
    def _leads(self) -> bool:
        return self._role.status() is MemberRole.MASTER

    def _pause_s(self) -> float:
        is_served = self._leads or self._role.status() is MemberRole.SLAVE
        return self._rules.renew_every_s if is_served else self._news.pause_s(self._rules.renew_every_s)

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
        """This member does not lead any more."""
        if self._leads:
            self._outside.step_down(self._reader.member.epochs.last_epoch + 1)
        self._news.expect()

    async def _look(self) -> None:
        try:
            wanted, _ = await self._reader.consult(self._note)
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
            self.why, self._news.master = wanted.reason, ""
            self._outside.say("role", wanted.reason)

    def _follow(self, wanted: Follow) -> None:
        members, role = self._rules.members, self._role
        if isinstance(role, MasterRole):
            self._outside.restart(f"member {wanted.ordinal} leads in epoch {wanted.epoch}")
            return
        self._news.master = members[wanted.ordinal] if wanted.ordinal < len(members) else ""
        if wanted.epoch > self._stood_as:
            # Name servers take brokerId 0 from anyone who still has it by a lower epoch.
            self._stood_as = wanted.epoch
            self._outside.stand_as_slave(wanted.epoch)
        role.hurry()

    def _note(self, record: Record) -> None:
        if isinstance(self._role, SlaveRole):
            number = self._reader.new_number(record)
            if number is not None:
                self._promise_writer.number(number, self._numbered)
            self._role.leave_lower(record.epoch)

    def _numbered(self, error: StoreError | None) -> None:
        if error is not None:
            self._outside.say("number", f"the number of this disk could not be kept: {error}")
        self.hurry()
