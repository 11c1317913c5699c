"""The loop around `decide`: ask, decide, write once, begin again.

A round reads the register live, asks every member at once, while the group is sealed also for the promises that are
missing, and carries one decision out by one compare-and-set on the version that it read.  A member that stands still
costs a round one time-out, whatever it is asked.  Whatever goes wrong with the write, the next round reads what became
of it.  So a coordinator may die anywhere, be started twice, or be late: the worst that
follows is one epoch too many.  It holds no lock and leads no election.

One that does not act (`acts`) looks and decides like any other, and neither writes, tells nor asks for a promise.  When
it is to act it has been looking for a while: whom it suspects, it suspects already.

A disk that answers empty under an ordinal other than the holder's is admitted, which gives it its number; it is cloned
and joins by the master's word, not by ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError
from gantry.failover.decide import Blocked, Bootstrap, Decision, Force, Policy, Promote, Recover, Seal, Wait, decide
from gantry.failover.notes import Notes
from gantry.failover.standing import HandOver
from gantry.replication import operations
from gantry.replication.hastate import MemberState
from gantry.replication.members import disk_of
from gantry.replication.operations import Denied
from gantry.replication.record import Phase, Record, Store
from gantry.replication.register import (
    Register,
    RegisterConflictError,
    RegisterDamagedError,
    RegisterError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)

SOON_S = 0.05  # the least pause between two rounds
HAND_OVER_S_MAX = 10.0  # for a planned change; nothing else is looked at meanwhile


def rest_s(period_s: float, took_s: float, due_in_s: float = float("inf")) -> float:
    """How long to rest after a round that took so long: rounds begin each period, anyone who does not answer.

    due_in_s: when something is to be decided even if nobody does anything, which does not wait for the next period.
    """
    return max(min(SOON_S, period_s), min(period_s - took_s, due_in_s))


def pause_s(decision: Decision, period_s: float, begun_s: float, now_s: float) -> float:
    """How long to rest after a round with this decision: after one that was carried out the next one is near."""
    if not isinstance(decision, Wait | Blocked):
        return min(SOON_S, period_s)
    due_s = decision.due_s if isinstance(decision, Wait) else float("inf")
    return rest_s(period_s, now_s - begun_s, due_s - now_s)


def always() -> bool:
    """Whether a coordinator acts that is the only one, or one of several that all do."""
    return True


@dataclass(frozen=True, slots=True)
class Group:
    """What is watched."""

    cluster_uid: str
    name: str
    ordinals: tuple[int, ...]
    policy: Policy
    lease_duration_s: int = 15
    had_stores: bool = False


class Members(Protocol):
    """How members are asked; each call ends within a bounded time, None when there was no answer."""

    async def state(self, ordinal: int) -> MemberState | None:
        """`GET /ha/v1/state`."""
        ...

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        """`POST /ha/v1/seal`: promise the epoch, then answer."""
        ...

    async def nudge(self, ordinal: int) -> None:
        """`POST /ha/v1/nudge`: the register is worth a look."""
        ...

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        """`POST /ha/v1/handover`: the master `ordinal` has `target` lead; whether it does."""
        ...

    def gone(self) -> frozenset[int]:
        """Ordinals whose process is known to be terminated."""
        ...


class Coordinator:
    """Watches one group; `tell` hears of each decision when it differs from the one before."""

    def __init__(
        self,
        group: Group,
        register: Register,
        members: Members,
        clock: Clock,
        tell: Callable[[Decision], None],
        acts: Callable[[], bool] = always,
    ) -> None:
        self._group = group
        self._register = register
        self._members = members
        self._clock = clock
        self._tell = tell
        self._acts = acts
        self.cluster_uid = ""  # of the register, as it was read last
        self._told: Decision | None = None
        self._notes = Notes(group.ordinals, group.policy, group.had_stores)

    async def run(self, period_s: float = 1.0) -> None:
        """Watch until cancelled."""
        while True:
            begun_s = self._clock.monotonic()
            decision = await self.round()
            await asyncio.sleep(pause_s(decision, period_s, begun_s, self._clock.monotonic()))

    async def round(self) -> Decision:
        """Once around; what was decided."""
        decision = await self._once()
        if not self._acts():
            self._told = None
        elif decision != self._told:
            self._told = decision
            self._tell(decision)
        return decision

    async def _once(self) -> Decision:
        try:
            seen = await self._register.read()
        except (RegisterUnavailableError, RegisterGoneError) as error:
            return Wait(f"the register cannot be read: {error}")
        except RegisterDamagedError as error:
            return Blocked(str(error))
        self.cluster_uid = "" if seen is None else seen.record.cluster_uid
        asked_s = self._clock.monotonic()
        self._notes.read(seen, asked_s)
        states = await self._ask_all(seen)
        record = None if seen is None else seen.record
        now_s = self._clock.monotonic()
        self._notes.observe(record, states, self._members.gone(), asked_s, now_s)
        decision = decide(self._notes.snapshot(record, states, now_s), now_s)
        if isinstance(decision, HandOver) and record is not None and record.holder is not None and self._acts():
            self._notes.handed_over(now_s)
            within_s = min(self._group.policy.suspect_after_s, HAND_OVER_S_MAX)
            await self._members.hand_over(record.holder.member.ordinal, decision.target, within_s)
        wanted = self._carried_out(decision, record)
        if record is not None and _may_admit(decision, record):
            # A master's serving lease follows the lease that it renewed: a shorter one holds from its next renewal on.
            wanted = operations.last(self._with_newcomers(record, states), self._group.lease_duration_s)
        if isinstance(wanted, Denied):
            return Blocked(wanted.reason)
        if wanted is not None and wanted != record and self._acts():
            refusal = await self._write(wanted, seen)
            if refusal:
                # Told as it is, and not tried again at once: a register may be read and not written for hours.
                return Wait(f"the register did not take what was decided, {type(decision).__name__}: {refusal}")
        return decision

    async def _ask_all(self, seen: Seen | None) -> dict[int, MemberState]:
        """What every member says, all asked at once."""
        is_sealed = seen is not None and seen.record.phase is not Phase.ACTIVE
        late = self._notes.unsealed() if is_sealed and self._acts() else ()
        epoch = 0 if seen is None else seen.record.epoch
        ordinals = self._group.ordinals
        answers = await asyncio.gather(*(self._ask(each, epoch if each in late else 0) for each in ordinals))
        return {ordinal: state for ordinal, state in zip(ordinals, answers, strict=True) if state is not None}

    async def _ask(self, ordinal: int, epoch: int) -> MemberState | None:
        """Its state; epoch: the one that it has yet to promise, 0 for none."""
        if not epoch:
            return self._ours(await self._members.state(ordinal), ordinal)
        asked = self._members.state(ordinal), self._members.seal(ordinal, epoch)
        state, promised = [self._ours(answer, ordinal) for answer in await asyncio.gather(*asked)]
        if promised is None:
            return state
        self._notes.answered_seal(promised, self._clock.monotonic())
        is_there = state is not None and (state.me, state.store_uid) == (promised.me, promised.store_uid)
        # Which answer is older cannot be told; the one to the seal was given when everything had stopped.
        return promised if is_there else state

    def _ours(self, state: MemberState | None, ordinal: int) -> MemberState | None:
        return state if state is not None and self._is_ours(state, ordinal) else None

    def _is_ours(self, state: MemberState, ordinal: int) -> bool:
        """Whether this is the member that was asked; an address may have gone to somebody else."""
        return (
            state.member.ordinal == ordinal
            and state.group == self._group.name
            and state.cluster_uid in ("", self._group.cluster_uid)
        )

    def _carried_out(self, decision: Decision, record: Record | None) -> Record | Denied | None:
        group = self._group
        match decision:
            case Seal() if record is not None:
                return operations.seal(record)
            case Promote(chosen, in_sync) if record is not None:
                return operations.promote(record, chosen, in_sync)
            case Force(chosen, log_end) if record is not None:
                return operations.force(record, chosen, log_end)
            case Bootstrap(uids):
                begun: Record | Denied = operations.bootstrap(group.cluster_uid, group.lease_duration_s)
                for ordinal, uid in uids:
                    begun = begun if isinstance(begun, Denied) else operations.admit(begun, ordinal, uid)
                return begun
            case Recover(_, states):
                promises = [max(state.promise, state.epoch, state.last_epoch) for state in states]
                promises += [record.epoch] if record is not None else []
                stores = _stores_of(states, record)
                return operations.recreate(group.cluster_uid, promises, stores, group.lease_duration_s)
            case _:
                return None

    def _with_newcomers(self, record: Record, states: dict[int, MemberState]) -> Record:
        """The record with every unused disk admitted that it does not know."""
        for ordinal, state in states.items():
            known = record.store(ordinal)
            if state.is_unused and (known is None or known.uid != state.store_uid):
                admitted = operations.admit(record, ordinal, state.store_uid)
                record = record if isinstance(admitted, Denied) else admitted
        return record

    async def _write(self, wanted: Record, seen: Seen | None) -> str:
        """One compare-and-set; why it may not have been done, if nobody else wrote meanwhile.

        The next round sees what became of it.
        """
        try:
            if seen is None:
                await self._register.create(wanted)
            else:
                await self._register.write(wanted, seen.version)
        except RegisterConflictError:
            return ""
        except (RegisterError, OutcomeUnknownError) as error:
            return str(error)
        if wanted.holder is not None:
            await self._members.nudge(wanted.holder.member.ordinal)
        return ""


def _may_admit(decision: Decision, record: Record) -> bool:
    """Whenever nothing else is to be written; also of a group that waits for everybody, new disks too."""
    is_gathering = record.phase in (Phase.BOOTSTRAPPING, Phase.RECOVERING)
    return isinstance(decision, Wait) or (is_gathering and isinstance(decision, Blocked))


def _stores_of(states: Iterable[MemberState], record: Record | None) -> tuple[tuple[int, Store], ...]:
    """The disks as they stand now; one that is unused and new gets a number that its predecessor did not have."""
    stores = {} if record is None else dict(record.stores)
    for state in states:
        ordinal = state.member.ordinal
        former = stores.get(ordinal)
        if former is None or not state.is_unused:
            stores[ordinal] = Store(state.store_uid, disk_of(state.member.incarnation))
        elif former.uid != state.store_uid:
            stores[ordinal] = Store(state.store_uid, former.disk + 1)
    return tuple(sorted(stores.items()))
