"""The loop around `decide`: ask the members, decide, write once, repeat.

A round reads the register live, asks every member at once, while the group is sealed also for the promises that are
missing, and carries one decision out by one compare-and-set on the version that it read.  A member that does not answer
costs a round one time-out, however many questions it is asked, and one that did not answer the round before delays no
decision that becomes due by time alone (`Wait.due_s`).  When the write fails, the next round reads what became
of it.  So a coordinator may die at any point, run twice, or be late: the worst consequence is one unnecessary epoch.
It holds no lock and takes part in no election of coordinators.

A coordinator that does not act (`acts`) observes and decides like any other.  It does not write, report or ask for a
promise.  When it takes over, it has observed the group for a while already, so suspicion does not start from zero.

An empty disk under an ordinal other than the holder's is admitted: the register gives it a number.  The master then
decides when its copy is complete and it joins the in-sync set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError
from gantry.failover.agreement import differences, weakest
from gantry.failover.decide import Blocked, Bootstrap, Decision, Force, Policy, Promote, Recover, Seal, Wait, decide
from gantry.failover.notes import Notes
from gantry.failover.standing import HandOver, is_admitted
from gantry.replication import operations
from gantry.replication.hastate import MemberState
from gantry.replication.members import disk_of
from gantry.replication.operations import Denied
from gantry.replication.record import MemberDisk, Phase, RegisterRecord
from gantry.replication.register import (
    Register,
    RegisterConflictError,
    RegisterDamagedError,
    RegisterError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from gantry.replication.register_writer import RegisterWriter

SOON_S = 0.05  # the least pause between two rounds
HAND_OVER_S_MAX = 10.0  # for a planned change; nothing else is looked at meanwhile


def rest_s(period_s: float, took_s: float, due_in_s: float = float("inf")) -> float:
    """Return how many seconds to wait after a round that took `took_s`; a round begins every period.

    due_in_s: seconds until a decision becomes due by time alone; the wait is not longer than that.
    """
    return max(min(SOON_S, period_s), min(period_s - took_s, due_in_s))


def pause_s(decision: Decision, period_s: float, begun_s: float, now_s: float) -> float:
    """Return how many seconds to wait after a round with this decision; short after one that was carried out."""
    if not isinstance(decision, Wait | Blocked):
        return min(SOON_S, period_s)
    due_s = decision.due_s if isinstance(decision, Wait) else float("inf")
    return rest_s(period_s, now_s - begun_s, due_s - now_s)


def always() -> bool:
    """The default of `acts`: this coordinator always acts."""
    return True


@dataclass(frozen=True, slots=True)
class Group:
    """The group that is watched.

    policy, lease_duration_s: what the coordinator was told (`agreement`); 0: nothing about the lease.
    """

    cluster_uid: str
    name: str
    ordinals: tuple[int, ...]
    policy: Policy
    lease_duration_s: int = 0


class Members(Protocol):
    """How members are asked. Each call ends within a bounded time; None when there was no answer."""

    async def state(self, ordinal: int) -> MemberState | None:
        """Return the member's state (`GET /ha/v1/state`)."""
        ...

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        """`POST /ha/v1/seal`: promise the epoch, then answer."""
        ...

    async def nudge(self, ordinal: int) -> None:
        """Ask the member to read the register now (`POST /ha/v1/nudge`)."""
        ...

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        """Ask the master `ordinal` to make `target` the master (`POST /ha/v1/handover`). Return whether it did."""
        ...

    def gone(self) -> frozenset[int]:
        """Return the ordinals whose process is known to have ended."""
        ...


class Coordinator:
    """Watches one group. `tell` is called with each decision that differs from the one before."""

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
        self._answers: dict[int, MemberState] = {}  # the last one of each member
        self.policy, self.timers = weakest(group.policy, group.lease_duration_s, {})  # of the last round
        self._told: Decision | None = None
        self._due_s = float("inf")  # when the last decision changes by time alone
        self._notes = Notes(group.ordinals, group.policy)

    async def run(self, period_s: float = 0.0) -> None:
        """Run a round every `period_s`, 0: as the members' terms say, until cancelled, or until the register has the
        id of another cluster.
        """
        while True:
            begun_s = self._clock.monotonic()
            decision = await self.round()
            if self.cluster_uid not in ("", self._group.cluster_uid):
                return
            if not self._acts():
                decision = Wait("another coordinator acts")
            every_s = period_s or self.timers.poll_every_s
            await asyncio.sleep(pause_s(decision, every_s, begun_s, self._clock.monotonic()))

    async def round(self) -> Decision:
        """Run one round and return its decision."""
        decision = await self._once()
        self._due_s = decision.due_s if isinstance(decision, Wait) else float("inf")
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
        self._agree(states)
        now_s = self._clock.monotonic()
        self._notes.observe(record, states, self._members.gone(), asked_s, now_s)
        decision = decide(self._notes.snapshot(record, states, now_s), now_s)
        if isinstance(decision, HandOver) and record is not None and record.holder is not None and self._acts():
            self._notes.handed_over(now_s)
            within_s = min(self.policy.suspect_after_s, HAND_OVER_S_MAX)
            await self._members.hand_over(record.holder.member.ordinal, decision.target, within_s)
        wanted = self._carried_out(decision, record, states)
        if record is not None and _may_admit(decision, record):
            # A master's serving lease follows the lease that it renewed, so a shorter one waits for its next renewal.
            wanted = operations.last(self._with_newcomers(record, states), self.timers.lease_s)
        if isinstance(wanted, Denied):
            return Blocked(wanted.reason)
        if wanted is not None and wanted != record and self._acts():
            refusal = await self._write(wanted, seen)
            if refusal:
                # Not tried again at once: a register may be readable and not writable for hours.
                return Wait(f"the register refused the decision {type(decision).__name__}: {refusal}")
        differ = differences(self._group.policy, self._answers)
        if differ and isinstance(decision, Wait | Blocked):
            return replace(decision, reason=f"{decision.reason}; the weakest terms count, they differ: {differ}")
        return decision

    def _agree(self, states: dict[int, MemberState]) -> None:
        """Go by the weakest terms of all members; the last answer of a silent one counts."""
        self._answers |= states
        self.policy, self.timers = weakest(self._group.policy, self._group.lease_duration_s, self._answers)
        self._notes.policy = self.policy

    async def _ask_all(self, seen: Seen | None) -> dict[int, MemberState]:
        """Ask every member at the same time. Return the states of those that answered, by ordinal."""
        is_sealed = seen is not None and seen.record.phase is not Phase.ACTIVE
        late = self._notes.unsealed() if is_sealed and self._acts() else ()
        epoch = 0 if seen is None else seen.record.epoch
        left = self._notes.not_waited_for(self._clock.monotonic()) if is_sealed else frozenset()
        asked = {
            each: asyncio.ensure_future(self._ask(each, epoch if each in late else 0)) for each in self._group.ordinals
        }
        silent = self._notes.silent() - left
        try:
            await asyncio.gather(*(asking for ordinal, asking in asked.items() if ordinal not in left | silent))
            await self._wait_until_due([asked[ordinal] for ordinal in silent])
        finally:
            await _end(asked.values())
        answers = {each: asking.result() for each, asking in asked.items() if not asking.cancelled()}
        return {each: state for each, state in answers.items() if state is not None}

    async def _wait_until_due(self, asking: Collection[asyncio.Future[MemberState | None]]) -> None:
        """Wait for answers, but not longer than until the decision of the last round changes by time alone."""
        if asking:
            left_s = self._due_s - self._clock.monotonic()
            await asyncio.wait(asking, timeout=None if left_s == float("inf") else max(0.0, left_s))

    async def _ask(self, ordinal: int, epoch: int) -> MemberState | None:
        """Return the member's state. epoch: what it has yet to promise; 0: nothing."""
        if not epoch:
            return self._ours(await self._members.state(ordinal), ordinal)
        asked = self._members.state(ordinal), self._members.seal(ordinal, epoch)
        state, promised = [self._ours(answer, ordinal) for answer in await asyncio.gather(*asked)]
        if promised is None:
            return state
        self._notes.answered_seal(promised, self._clock.monotonic())
        is_there = state is not None and (state.me, state.store_uid) == (promised.me, promised.store_uid)
        # Which answer is older is unknown; the one to the seal was given after the member had stopped serving.
        return promised if is_there else state

    def _ours(self, state: MemberState | None, ordinal: int) -> MemberState | None:
        """Return the state if it is of the member that was asked; its address may belong to another process by now."""
        if state is None or (state.member.ordinal, state.group) != (ordinal, self._group.name):
            return None
        return state if state.cluster_uid in ("", self._group.cluster_uid) else None

    def _carried_out(
        self, decision: Decision, record: RegisterRecord | None, now: dict[int, MemberState]
    ) -> RegisterRecord | Denied | None:
        uid, lease_s = self._group.cluster_uid, self.timers.lease_s
        match decision:
            case Seal() if record is not None:
                return operations.seal(record)
            case Promote(chosen, in_sync) if record is not None:
                return operations.promote(record, chosen, in_sync, now[chosen.member.ordinal].terms)
            case Force(chosen, log_end) if record is not None:
                return operations.force(record, chosen, log_end, now[chosen.member.ordinal].terms)
            case Bootstrap(uids):
                begun: RegisterRecord | Denied = operations.bootstrap(uid, lease_s)
                for ordinal, uid in uids:
                    begun = begun if isinstance(begun, Denied) else operations.admit(begun, ordinal, uid)
                return begun
            case Recover(_, states):
                promises = [max(state.promise, state.epoch, state.last_epoch) for state in states]
                promises += [record.epoch] if record is not None else []
                stores = _stores_of(states, record)
                return operations.recreate(uid, promises, stores, lease_s)
            case _:
                return None

    def _with_newcomers(self, record: RegisterRecord, states: dict[int, MemberState]) -> RegisterRecord:
        """Return the record with every unused disk admitted that it does not know yet."""
        for ordinal, state in states.items():
            if state.is_unused and not is_admitted(state, record):
                admitted = operations.admit(record, ordinal, state.store_uid)
                record = record if isinstance(admitted, Denied) else admitted
        return record

    async def _write(self, wanted: RegisterRecord, seen: Seen | None) -> str:
        """Write by one compare-and-set. Return why it may have failed; empty after success and after a conflict.

        The next round reads what the register holds, also where a reading shows that it changed before an answer came.
        """
        writer = RegisterWriter(self._register, self._clock, self.timers.poll_every_s)
        try:
            if seen is None:
                await writer.create(wanted)
            else:
                await writer.write(wanted, seen.version)
        except RegisterConflictError:
            return ""
        except (RegisterError, OutcomeUnknownError) as error:
            return str(error)
        if wanted.holder is not None:
            await self._members.nudge(wanted.holder.member.ordinal)
        return ""


async def _end(asking: Collection[asyncio.Future[MemberState | None]]) -> None:
    """Cancel the questions that are not answered, and wait until they have ended."""
    late = [each for each in asking if each.cancel()]
    if late:
        await asyncio.wait(late)


def _may_admit(decision: Decision, record: RegisterRecord) -> bool:
    """Return whether disks may be admitted: nothing else is to be written, or the group waits for all its members."""
    is_gathering = record.phase in (Phase.BOOTSTRAPPING, Phase.RECOVERING)
    return isinstance(decision, Wait) or (is_gathering and isinstance(decision, Blocked))


def _stores_of(states: Iterable[MemberState], record: RegisterRecord | None) -> tuple[tuple[int, MemberDisk], ...]:
    """Return the disks as the members report them. An unused new disk gets a number that no earlier disk had."""
    stores = {} if record is None else dict(record.stores)
    for state in states:
        ordinal = state.member.ordinal
        former = stores.get(ordinal)
        if former is None or not state.is_unused:
            stores[ordinal] = MemberDisk(state.store_uid, disk_of(state.member.incarnation))
        elif former.uid != state.store_uid:
            stores[ordinal] = MemberDisk(state.store_uid, former.disk + 1)
    return tuple(sorted(stores.items()))
