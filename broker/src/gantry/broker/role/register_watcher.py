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
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.essential import essential
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.errors import OutcomeUnknownError, StoreError
from gantry.replication.record import Record
from gantry.replication.register import Register, RegisterError
from gantry.replication.role_decision import Claim, Follow, Lead, decide_role, disk_in

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.clock import Clock
    from gantry.replication.lease_renewal import LeaseRenewal
    from gantry.store.store import Store

_AT_ONCE_S, _SOON_S = 0.05, 0.25
_KEEN_S, _EAGER_S = 2.0, 20.0  # for so long after the last sign that somebody is about to lead


@dataclass(frozen=True, slots=True)
class Rules:
    """How often, and where members are."""

    renew_every_s: float
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """What the rest of the broker does: step down in an epoch, start again, say something once a minute; register at
    the name servers as somebody who does not lead this epoch.  is_stalled: the disk hangs, so another one should lead.
    """

    step_down: Callable[[int], None]
    restart: Callable[[str], None]
    say: Callable[[str, str], object]
    stand_as_slave: Callable[[int], None] = lambda epoch: None
    is_stalled: Callable[[], bool] = lambda: False


class RegisterWatcher:
    """Loop thread only; run() is a task of the broker."""

    def __init__(
        self,
        register: Register,
        member: Membership,
        store: Store,
        group: MasterRole | SlaveRole,
        promise_writer: PromiseWriter,
        clock: Clock,
        rules: Rules,
    ) -> None:
        self.lease_renewal: LeaseRenewal | None = None  # of who leads
        self.outside = Outside(lambda epoch: None, lambda why: None, lambda key, text: None)
        self.why = ""  # this member does neither lead nor follow
        self.master = ""  # where whom we follow listens for us; empty: nobody
        self._register = register
        self._member = member
        self._store = store
        self._group = group
        self._promise_writer = promise_writer
        self._clock = clock
        self._rules = rules
        self._stood_as = 0  # the epoch that name servers were told
        self._is_hurried = asyncio.Event()
        self._news_s = clock.monotonic() - _KEEN_S  # the last sign that somebody is about to lead
        self._running: asyncio.Task[None] | None = None

    def start(self, fail: Callable[[str], None]) -> None:
        """Begin to look; fail: the process has to end, and why."""
        self._running = essential(self._run(), "looking at the register", fail)

    async def stop(self) -> None:
        """Look no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def hurry(self) -> None:
        """The register is worth a look now."""
        self._is_hurried.set()

    def expect_news(self) -> None:
        """Somebody is about to lead: look often."""
        self._news_s = self._clock.monotonic()
        self._is_hurried.set()

    async def _run(self) -> None:
        while True:
            self._is_hurried.clear()
            if self._leads:
                await self._renew()
            else:
                await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._is_hurried.wait()

    @property
    def _leads(self) -> bool:
        return isinstance(self._group, MasterRole) and not self._group.is_sealed

    def _pause_s(self) -> float:
        if self._leads:
            return self._rules.renew_every_s
        is_alone = not isinstance(self._group, SlaveRole) or self._group.is_alone
        news_ago_s = self._clock.monotonic() - self._news_s
        if not is_alone or news_ago_s >= _EAGER_S:
            return self._rules.renew_every_s
        return min(_AT_ONCE_S if news_ago_s < _KEEN_S else _SOON_S, self._rules.renew_every_s)

    async def _renew(self) -> None:
        lease_renewal = self.lease_renewal
        assert lease_renewal is not None
        if self.outside.is_stalled():
            await lease_renewal.look()
        else:
            await lease_renewal.renew()
        if lease_renewal.why:
            self.outside.say("register", f"the register could not be renewed: {lease_renewal.why}")
        if lease_renewal.is_lost:
            self.lose()

    def lose(self) -> None:
        """This member does not lead any more."""
        if self._leads:
            self.outside.step_down(self._member.epochs.last_epoch + 1)
        self.expect_news()

    async def _look(self) -> None:
        try:
            seen = await self._register.read()
            record = None if seen is None else seen.record
            if record is not None:
                self._number(record)
                if isinstance(self._group, SlaveRole):
                    self._group.leave_lower(record.epoch)
            wanted = decide_role(record, self._member.known(self._store.written.offset))
            if isinstance(wanted, Claim) and seen is not None:
                await self._register.write(wanted.record, seen.version)
                wanted = Lead(wanted.record.epoch)
        except (RegisterError, OutcomeUnknownError) as error:
            self.why = f"the register does not say who leads: {error}"
            self.outside.say("register", self.why)
            return
        self.why = ""
        if isinstance(wanted, Lead):
            self.outside.restart(f"the register names this member the master of epoch {wanted.epoch}")
        elif isinstance(wanted, Follow):
            self._follow(wanted)
        else:
            assert not isinstance(wanted, Claim)
            self.why, self.master = wanted.reason, ""
            self.outside.say("role", wanted.reason)

    def _follow(self, wanted: Follow) -> None:
        members, group = self._rules.members, self._group
        if isinstance(group, MasterRole):
            self.outside.restart(f"member {wanted.ordinal} leads in epoch {wanted.epoch}")
            return
        self.master = members[wanted.ordinal] if wanted.ordinal < len(members) else ""
        if wanted.epoch > self._stood_as:
            # Name servers take brokerId 0 from anyone who still has it by a lower epoch.
            self._stood_as = wanted.epoch
            self.outside.stand_as_slave(wanted.epoch)
        group.hurry()

    def _number(self, record: Record) -> None:
        number = disk_in(record, self._member.place, self._member.identity.store_uid)
        if number is not None and number != self._member.term_promise.disk and isinstance(self._group, SlaveRole):
            self._promise_writer.number(number, self._numbered)

    def _numbered(self, error: StoreError | None) -> None:
        if error is not None:
            self.outside.say("number", f"the number of this disk could not be kept: {error}")
        self.hurry()
