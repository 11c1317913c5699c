"""The register as one member uses it: when to read it, what it says about this member's role, and claims of an epoch.

Only this module reads the register for a role, decides (`replication.role_decision`) and writes a claim.  A claim
counts when the register has confirmed the write; an unknown outcome gives no epoch.

The role stays the same from `Broker.start` to `stop`.  `choose` finds it when the store is open, before the other parts
are built, and `register_watcher` calls `consult` from then on.  A member that has to change its role stops its broker
and starts another one in the same process.  So `assemble` connects all parts once, as if the configuration had named
the role: a slave has the role SLAVE and the brokerId ordinal + 1, the master the group's role and the brokerId 0.

When the register does not answer in time, the member starts without a master: a restarted master waits for the
register.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.role import membership
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import OutcomeUnknownError
from gantry.replication.record import RegisterRecord
from gantry.replication.register import RegisterConflictError, RegisterError, Seen
from gantry.replication.role_decision import Claim, Follow, Lead, Stand, decide_role

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.clock import Clock
    from gantry.replication.register_writer import RegisterWriter
    from gantry.store.disk import Disk
    from gantry.store.store import Store

log = logging.getLogger("gantry.replication")

_ATTEMPTS = 3
_AT_ONCE_S, _SOON_S = 0.05, 0.25
_KEEN_S, _EAGER_S = 2.0, 20.0  # for so long after the last sign of a new master


class MemberRegister:
    """One member's access to the register; loop thread only.

    master: the replication address of the master that the register names; empty while no master is known.
    """

    def __init__(self, writer: RegisterWriter, member: Membership, store: Store, clock: Clock) -> None:
        self.writer = writer
        self.member = member
        self.master = ""
        self._store = store
        self._clock = clock
        self._is_due = asyncio.Event()
        self._expected_s = clock.monotonic() - _KEEN_S

    async def choose(self, config: BrokerConfig, disk: Disk) -> tuple[BrokerConfig, Seen | None]:
        """Choose the role of this start, and store it on the disk.

        Return the configuration with that role, and for a master the register as it was read or written last.
        """
        member, store, why = self.member, self._store, ""
        root = store.settings.root

        def keep_number(record: RegisterRecord) -> None:
            number = self.new_number(record)
            if number is not None:
                membership.take_number(member, disk, root, number)

        following = replace(config, role=Role.SLAVE, id=member.place + 1)
        for _ in range(_ATTEMPTS):
            try:
                wanted, seen = await self.consult(keep_number)
            except (RegisterConflictError, OutcomeUnknownError) as error:
                why = str(error)
                continue
            except RegisterError as error:
                why = str(error)
                break
            if not isinstance(wanted, Lead):
                return following, None
            assert seen is not None
            ends = store.reader.log_start, store.written.offset
            store.in_reserve(partial(membership.lead, member, disk, root, seen.record.cluster_uid, wanted.epoch, ends))
            log.warning("%s leads group %s in epoch %d", member.me, config.name, wanted.epoch)
            return config, seen
        log.warning("the register of group %s: %s; this member has no master until it answers", config.name, why)
        return following, None

    async def consult(self, noted: Callable[[RegisterRecord], None]) -> tuple[Lead | Follow | Stand, Seen | None]:
        """Read the register, decide, and claim the next epoch if this member has to; what was read or written last.

        noted: called with the record that was read, before the decision.  Errors: RegisterConflictError (the register
        changed meanwhile: read again, a claim may have been carried out), RegisterError, and OutcomeUnknownError when a
        claim was sent and not answered.
        """
        seen = await self.writer.register.read()
        if seen is not None:
            noted(seen.record)
        known = self.member.known(self._store.written.offset)
        wanted = decide_role(None if seen is None else seen.record, known)
        if not isinstance(wanted, Claim):
            return wanted, seen
        assert seen is not None, "only a record names a former process"
        written = await self.writer.write(wanted.record, seen.version)
        if not written.is_answered:
            raise RegisterConflictError("the register changed while this member claimed an epoch")
        return Lead(wanted.record.epoch), written.seen

    def new_number(self, record: RegisterRecord) -> int | None:
        """Return the number that the record gives this member's disk, when the member has another one; else None."""
        number = record.disk_number(self.member.place, self.member.identity.store_uid)
        return None if number == self.member.term_promise.disk else number

    def hurry(self) -> None:
        """Make the watcher read the register now."""
        self._is_due.set()

    def expect_master(self) -> None:
        """Make the watcher read the register often for a while, because a new master is likely."""
        self._expected_s = self._clock.monotonic()
        self._is_due.set()

    def note_reading(self) -> None:
        """Note that the register is about to be read: only later calls of `hurry` cause another reading."""
        self._is_due.clear()

    def pause_s(self, period_s: float) -> float:
        """Return for how many seconds a member without a master waits for its next reading; at most `period_s`."""
        passed_s = self._clock.monotonic() - self._expected_s
        if passed_s >= _EAGER_S:
            return period_s
        return min(_AT_ONCE_S if passed_s < _KEEN_S else _SOON_S, period_s)

    async def wait(self, pause_s: float) -> None:
        """Wait for the pause, or until the register has to be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_due.wait()
