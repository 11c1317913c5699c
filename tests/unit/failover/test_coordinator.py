"""How a round asks: everybody at once, whatever there is to ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.failover.coordinator import Coordinator, Group, pause_s, rest_s
from gantry.failover.decide import Bootstrap, Decision, Policy, Promote, Seal, Wait
from gantry.replication import operations
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.record import Phase, RegisterRecord
from gantry.replication.register import RegisterUnavailableError, Seen
from gantry.replication.registerfile import FileRegister
from testkit.hamembers import CLUSTER, GROUP, GroupSim, fresh
from testkit.patience import HANG_S
from testkit.registers import LossyRegister
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

POLICY = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=2.0)


class Standing(GroupSim):
    """Member 0 stands still: a question to it ends only when both questions of a round have been asked."""

    both: asyncio.Event
    asked: set[str]
    disk: SimDisk  # of the register

    async def _never(self, question: str) -> None:
        self.asked.add(question)
        if len(self.asked) == 2:
            self.both.set()
        await self.both.wait()

    async def state(self, ordinal: int) -> MemberState | None:
        return await self._never("state") if ordinal == 0 else await super().state(ordinal)

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        return await self._never("seal") if ordinal == 0 else await super().seal(ordinal, epoch)


async def led_group() -> Standing:
    """A group of which member 0 leads epoch 1; nobody stands still."""
    disk = SimDisk()
    register = FileRegister("/register/b0", disk)
    group = Standing(register, {each: fresh(each, f"disk{each}") for each in range(3)})
    group.disk, group.both, group.asked = disk, asyncio.Event(), {"state", "seal"}
    group.both.set()
    begun = operations.bootstrap(CLUSTER, 6)
    for ordinal in range(3):
        assert isinstance(begun, RegisterRecord)
        begun = operations.admit(begun, ordinal, f"disk{ordinal}")
    assert isinstance(begun, RegisterRecord)
    states = [group.members[each].state for each in range(3)]
    led = operations.promote(begun, states[0].me, frozenset(state.member for state in states), states[0].terms)
    assert isinstance(led, RegisterRecord)
    await register.create(led)
    for member in group.members.values():
        member.state = replace(member.state, role=MemberRole.SLAVE, epoch=1, promise=1, last_epoch=1, log_end=10)
    return group


async def sealed_group() -> tuple[Standing, Coordinator, SimClock]:
    """The same, sealed since; member 0 stands still."""
    clock, group = SimClock(), await led_group()
    seen = await group.register.read()
    assert seen is not None
    sealed = operations.seal(seen.record)
    assert isinstance(sealed, RegisterRecord)
    await group.register.write(sealed, seen.version)
    group.both, group.asked = asyncio.Event(), set()
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), group.register, group, clock, lambda _: None)
    return group, coordinator, clock


async def test_a_member_that_stands_still_costs_a_round_one_timeout_and_not_one_for_each_question() -> None:
    group, coordinator, clock = await sealed_group()
    async with asyncio.timeout(HANG_S):
        await coordinator.round()
    assert group.asked == {"state", "seal"}
    clock.advance(400)
    decision = await coordinator.round()
    assert isinstance(decision, Promote) and decision.chosen.member.ordinal == 1, "after a fifth of the patience"


@pytest.mark.parametrize("is_new", [False, True], ids=["seal", "bootstrap"])
async def test_a_decision_that_is_carried_out_and_not_answered_holds_up_no_round(is_new: bool) -> None:
    group, disk, clock = await led_group(), SimDisk(), SimClock()
    if not is_new:  # member 0 leads and is silent
        disk, members = group.disk, group.members
    else:
        members = {each: fresh(each, f"disk{each}") for each in range(3)}
    register = LossyRegister(FileRegister("/register/b0", disk), answers_never=True)
    asked = GroupSim(register, members)
    members[0].is_up = is_new
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), register, asked, clock, lambda _: None)
    decisions = list[Decision]()
    async with asyncio.timeout(HANG_S):
        for _ in range(12):
            decisions.append(await coordinator.round())
            clock.advance(500)
    until = next(number for number, each in enumerate(decisions) if isinstance(each, Promote))
    writes = [type(each) for each in decisions[: until + 1] if not isinstance(each, Wait)]
    assert writes == [Bootstrap if is_new else Seal, Promote], decisions
    assert not any("refused" in each.reason for each in decisions if isinstance(each, Wait))


async def test_a_silent_master_is_sealed_when_that_is_due_and_not_when_its_question_times_out() -> None:
    group, clock = await led_group(), SimClock()
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), group.register, group, clock, lambda _: None)
    decision: Decision = Wait("", float("inf"))
    while isinstance(decision, Wait) and decision.due_s - clock.monotonic() > 0.5:  # member 0 gives no answer at once
        clock.advance(500)
        decision = await coordinator.round()
    assert isinstance(decision, Wait), decision
    group.both, group.asked = asyncio.Event(), set()  # from here on it hangs
    clock.advance(round(1000 * (decision.due_s - clock.monotonic())) + 1)
    async with asyncio.timeout(HANG_S):
        decision = await coordinator.round()
    assert isinstance(decision, Seal)


async def test_just_after_a_seal_nobody_waits_for_a_member_that_was_silent_for_a_whole_suspicion() -> None:
    group, clock = await led_group(), SimClock()
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), group.register, group, clock, lambda _: None)
    decision = None
    while not isinstance(decision, Seal):  # member 0 gives no answer at once
        clock.advance(500)
        decision = await coordinator.round()
    group.both, group.asked = asyncio.Event(), set()  # from here on it hangs
    clock.advance(50)
    async with asyncio.timeout(HANG_S):
        decision = await coordinator.round()
    assert isinstance(decision, Promote) and decision.chosen.member.ordinal == 1


async def test_a_while_after_a_seal_everybody_is_waited_for() -> None:
    group, coordinator, clock = await sealed_group()
    for each in (1, 2):
        group.members[each].is_up = False
    await coordinator.round()
    clock.advance(3_000)
    group.both, group.asked = asyncio.Event(), set()
    async with asyncio.timeout(HANG_S):
        await coordinator.round()  # ends when both questions to member 0 were asked, and it gave up
    assert group.both.is_set()


async def test_one_that_does_not_act_suspects_like_any_other_and_goes_on_at_once_when_it_is_to_act() -> None:
    """A standby has seen all that the leader saw, has written nothing, asked for no promise and told nobody."""

    group, clock, acts, told = await led_group(), SimClock(), list[bool](), list[Decision]()
    watched = Group(CLUSTER, GROUP, (0, 1, 2), POLICY)
    standby = Coordinator(watched, group.register, group, clock, told.append, lambda: bool(acts))
    before = await group.register.read()
    group.members[0].is_up = False
    for _ in range(8):
        decision = await standby.round()
        clock.advance(500)
    assert isinstance(decision, Seal)
    assert await group.register.read() == before and not told
    assert {member.state.promise for member in group.members.values()} == {1}
    acts.append(True)
    await standby.round()
    seen = await group.register.read()
    assert seen is not None and seen.record.phase is Phase.SEALED
    assert [type(each) for each in told] == [Seal]
    acts.clear()
    await standby.round()
    assert {member.state.promise for member in group.members.values()} == {1}, "a sealed group is looked at, too"


@pytest.mark.parametrize("error", [RegisterUnavailableError("no room"), OutcomeUnknownError("answered with 500")])
async def test_a_register_that_is_read_and_not_written_is_asked_no_more_often_than_any_other(error: Exception) -> None:
    class Unwritable(FileRegister):
        async def write(self, record: RegisterRecord, version: str) -> Seen:
            raise error

    group, clock, told = await led_group(), SimClock(), list[Decision]()
    register = Unwritable("/register/b0", group.disk)
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), register, group, clock, told.append)
    group.members[0].is_up = False
    for _ in range(8):
        decision = await coordinator.round()
        clock.advance(500)
    assert decision == Wait(f"the register refused the decision Seal: {error}") and decision in told
    assert pause_s(decision, 0.5, 0.0, 0.1) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("took_s", "rest"), [(0.0, 0.25), (0.2, 0.05), (0.5, 0.05)], ids=["at once", "slowly", "not in time"]
)
def test_rounds_begin_each_period_and_never_without_a_pause(took_s: float, rest: float) -> None:
    assert rest_s(0.25, took_s) == pytest.approx(rest)
