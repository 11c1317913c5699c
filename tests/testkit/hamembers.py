"""Members of a group as a coordinator sees them: they read the register when they are nudged or told to, and promise.

Nothing is replicated here; a log is a number.  `MemberSim` does what a broker has to do at a seal, a promotion and a
restart, by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gantry.replication import operations
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member, incarnation_of
from gantry.replication.record import Holder, RegisterRecord
from gantry.replication.register import Register, RegisterConflictError
from gantry.replication.terms import LeaderTerms, Terms

CLUSTER, GROUP = "1f0e7d", "b0"
TERMS = Terms(True, 2, 1.0, 1 << 26, 3)


@dataclass
class MemberSim:
    """One member's process and disk."""

    state: MemberState
    is_up: bool = True


def fresh(ordinal: int, uid: str) -> MemberSim:
    """An empty disk."""
    me = Holder(Member(ordinal, 0), f"p{ordinal}-0")
    return MemberSim(MemberState(CLUSTER, GROUP, uid, me, MemberRole.NONE, 0, 0, 0, 0, 0, 0, False, terms=TERMS))


@dataclass
class GroupSim:
    """Implements `failover.coordinator.Members`."""

    register: Register
    members: dict[int, MemberSim]
    terminated: set[int] = field(default_factory=set)
    nudged: list[int] = field(default_factory=list)
    handed: list[tuple[int, int, float]] = field(default_factory=list)

    async def state(self, ordinal: int) -> MemberState | None:
        member = self.members[ordinal]
        return member.state if member.is_up else None

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        member = self.members[ordinal]
        if not member.is_up or member.state.promise > epoch:
            return None
        member.state = replace(member.state, promise=epoch, role=MemberRole.NONE, is_writable=False)
        return member.state

    async def nudge(self, ordinal: int) -> None:
        self.nudged.append(ordinal)
        await self.look(ordinal)

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        self.handed.append((ordinal, target, within_s))
        return False

    def gone(self) -> frozenset[int]:
        return frozenset(self.terminated)

    async def look(self, ordinal: int) -> None:
        """The member reads the register and does what it says."""
        member, seen = self.members[ordinal], await self.register.read()
        if not member.is_up or seen is None or seen.record.holder is None:
            return
        record, state = seen.record, member.state
        store = record.store(ordinal)
        if store is not None and state.is_empty and store.uid == state.store_uid:
            me = Holder(Member(ordinal, incarnation_of(store.disk, 0)), state.me.process)
            state = replace(state, me=me)
        if record.epoch >= state.promise:
            leads = record.holder == state.me
            role = MemberRole.MASTER if leads else MemberRole.SLAVE
            state = replace(state, epoch=record.epoch, promise=record.epoch, role=role, is_writable=leads)
        member.state = state

    async def everybody_looks(self) -> None:
        for ordinal in self.members:
            await self.look(ordinal)

    async def renew(self, end: int) -> None:
        """The master writes up to `end`, everybody in the set has it, and the master renews."""
        seen = await self.register.read()
        assert seen is not None and seen.record.holder is not None
        record, master = seen.record, self.members[seen.record.holder.member.ordinal]
        if not master.is_up or master.state.me != record.holder:
            return
        for member in self.members.values():
            if member.is_up and member.state.member in record.in_sync:
                member.state = replace(member.state, last_epoch=record.epoch, log_end=end, confirmed=end)
        terms = master.state.terms
        said = terms and LeaderTerms(record.epoch, terms.is_sync, terms.min_in_sync, record.lease_duration_s)
        done = operations.renew(record, master.state.me, record.epoch, end, 0, said)
        assert isinstance(done, RegisterRecord)
        try:
            await self.register.write(done, seen.version)
        except RegisterConflictError:
            return
