"""Reads a member's role from the register, and claims an epoch there.

Only this module reads the register, decides (`replication.role_decision`) and writes a claim.  A claim counts when the
register has confirmed the write; an unknown outcome gives no epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.replication.record import RegisterRecord
from gantry.replication.register import RegisterConflictError
from gantry.replication.role_decision import Claim, Follow, Lead, Stand, decide_role, disk_in

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.replication.register import Seen
    from gantry.replication.register_writer import RegisterWriter
    from gantry.store.store import Store


class RegisterReader:
    """One member's access to the register; used at the start of a broker, and by the watcher later."""

    def __init__(self, writer: RegisterWriter, member: Membership, store: Store) -> None:
        self.writer = writer
        self.member = member
        self._store = store

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
        """The number that the record gives this member's disk, when the member has another one; else None."""
        number = disk_in(record, self.member.place, self.member.identity.store_uid)
        return None if number == self.member.term_promise.disk else number
