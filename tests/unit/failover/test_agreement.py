"""The weakest of all answers counts, whatever a coordinator was told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.failover.agreement import differences, untold, weakest
from gantry.failover.coordinator import Coordinator, Group
from gantry.failover.decide import Policy, Promote, Wait
from gantry.replication import operations
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member
from gantry.replication.record import Holder, RegisterRecord
from gantry.replication.registerfile import FileRegister
from gantry.replication.terms import LeaderTerms, Terms
from gantry.replication.timers import TIMERS
from testkit.hamembers import CLUSTER, GROUP, GroupSim, fresh
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

SYNC = Terms(True, 2, 2.5, 1 << 30, 3)
ALONE = replace(SYNC, is_sync=False, min_in_sync=1)
TOLD_SYNC = Policy(3, 2, True, 5.0)


def said(*terms: Terms | None) -> dict[int, MemberState]:
    made = {}
    for ordinal, each in enumerate(terms):
        me = Holder(Member(ordinal, 0), f"p{ordinal}")
        made[ordinal] = MemberState(
            CLUSTER, GROUP, f"disk{ordinal}", me, MemberRole.NONE, 0, 0, 0, 0, 0, 0, False, terms=each
        )
    return made


def test_a_coordinator_that_was_told_nothing_goes_by_what_the_members_say() -> None:
    assert weakest(untold(3), 0, said(SYNC, SYNC, SYNC)) == (Policy(3, 2, True, 5.0), TIMERS["default"])
    fast = replace(SYNC, renew_every_s=1.0)
    assert weakest(untold(3), 0, said(fast, fast, fast)) == (Policy(3, 2, True, 2.0), TIMERS["fast"])


@pytest.mark.parametrize("told", [untold(3), TOLD_SYNC])
@pytest.mark.parametrize("weak", [ALONE, replace(SYNC, min_in_sync=1), replace(SYNC, is_sync=False), None])
def test_one_member_that_acknowledges_alone_makes_everybody_wait(told: Policy, weak: Terms | None) -> None:
    found, _ = weakest(told, 0, said(SYNC, weak, SYNC))
    assert not found.is_fast and found.min_in_sync == (1 if weak is None else weak.min_in_sync)


def test_what_a_coordinator_was_told_can_only_make_it_wait_longer() -> None:
    told = Policy(3, 1, False, 8.0)
    found, timers = weakest(told, 20, said(SYNC, SYNC, SYNC))
    assert not found.is_fast and (timers.suspect_after_s, timers.lease_s) == (8.0, 20)
    impatient, timers = weakest(Policy(3, 2, True, 2.0), 6, said(SYNC, SYNC, SYNC))
    assert impatient.suspect_after_s == timers.suspect_after_s == 5.0, "two renewals of its members"
    assert timers.lease_s == 8, "three of them"


def test_a_group_of_more_members_than_the_coordinator_knows_is_not_complete_without_them() -> None:
    assert weakest(untold(2), 0, said(SYNC, SYNC))[0].replicas == 3


def test_members_with_places_for_more_do_not_keep_a_group_of_known_size_waiting() -> None:
    operators = replace(TOLD_SYNC, replicas=2, knows_size=True)
    assert weakest(operators, 0, said(SYNC, SYNC))[0].replicas == 2
    assert differences(operators, said(SYNC, SYNC)) == ""


def test_who_differs_is_named() -> None:
    assert differences(TOLD_SYNC, said(SYNC, SYNC, SYNC)) == ""
    assert differences(untold(3), said(SYNC, SYNC)) == ""
    found = differences(untold(3), said(SYNC, ALONE, None))
    assert "role (member 0: SYNC_MASTER, member 1: ASYNC_MASTER, member 2: unknown)" in found
    assert "minInSync (member 0: 2, member 1: 1)" in found
    assert "members (member 0: 3, this coordinator: 2)" in differences(untold(2), said(SYNC))


async def sealed(
    terms: Terms | None, leader: LeaderTerms | None, told: Policy
) -> tuple[GroupSim, Coordinator, SimClock]:
    """Member 0 led epoch 1 on these terms, renewed, was sealed, and answers nobody."""
    clock, register = SimClock(), FileRegister("/register/b0", SimDisk())
    group = GroupSim(register, {each: fresh(each, f"disk{each}") for each in range(3)})
    begun = operations.bootstrap(CLUSTER, 15)
    for ordinal in range(3):
        assert isinstance(begun, RegisterRecord)
        begun = operations.admit(begun, ordinal, f"disk{ordinal}")
    assert isinstance(begun, RegisterRecord)
    led = operations.promote(begun, group.members[0].state.me, frozenset(Member(each, 0) for each in range(3)))
    assert isinstance(led, RegisterRecord)
    done = operations.seal(replace(led, leader_terms=leader))
    assert isinstance(done, RegisterRecord)
    await register.create(done)
    for member in group.members.values():
        changes = {"epoch": 1, "promise": 1, "last_epoch": 1, "log_end": 10, "terms": terms}
        member.state = replace(member.state, role=MemberRole.SLAVE, **changes)  # type: ignore[arg-type]
    group.members[0].is_up = False
    return group, Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), told), register, group, clock, lambda _: None), clock


async def promoted_after_s(terms: Terms | None, leader: LeaderTerms | None, told: Policy) -> float:
    _, coordinator, clock = await sealed(terms, leader, told)
    while not isinstance(decision := await coordinator.round(), Promote):
        assert isinstance(decision, Wait) and clock.monotonic() < 60
        clock.advance(500)
    return clock.monotonic()


@pytest.mark.parametrize("told", [untold(3), TOLD_SYNC])
async def test_a_former_master_that_needs_its_slaves_is_not_waited_for(told: Policy) -> None:
    assert await promoted_after_s(SYNC, LeaderTerms(1, True, 2, 15), told) < 2


@pytest.mark.parametrize("told", [untold(3), TOLD_SYNC])
@pytest.mark.parametrize(
    ("terms", "leader"),
    [
        (ALONE, LeaderTerms(1, False, 1, 15)),
        (SYNC, LeaderTerms(1, False, 1, 15)),  # only the one that led acknowledges alone
        (SYNC, LeaderTerms(1, True, 1, 15)),
        (ALONE, LeaderTerms(1, True, 2, 15)),
        (None, LeaderTerms(1, True, 2, 15)),  # members of the previous version
        (SYNC, None),  # a master of the previous version
    ],
)
async def test_any_other_is_waited_for_until_its_lease_is_over(
    terms: Terms | None, leader: LeaderTerms | None, told: Policy
) -> None:
    assert await promoted_after_s(terms, leader, told) >= 17, "the lease of 15 s, and the margin"


async def test_terms_of_an_earlier_epoch_say_nothing_about_who_led_last() -> None:
    group, coordinator, clock = await sealed(SYNC, LeaderTerms(1, True, 2, 15), untold(3))
    seen = await group.register.read()
    assert seen is not None
    await group.register.write(replace(seen.record, epoch=3), seen.version)
    for _ in range(30):
        assert isinstance(await coordinator.round(), Wait)
        clock.advance(500)


async def test_who_is_promoted_is_known_with_its_terms_before_its_first_renewal() -> None:
    group, coordinator, clock = await sealed(SYNC, LeaderTerms(1, True, 2, 15), untold(3))
    for _ in range(4):
        await coordinator.round()
        clock.advance(500)
    seen = await group.register.read()
    assert seen is not None and seen.record.last_led == LeaderTerms(2, True, 2, 15)
