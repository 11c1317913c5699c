"""How a round asks: everybody at once, whatever there is to ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantry.failover.coordinator import Coordinator, Group, rest_s
from gantry.failover.decide import Policy, Promote
from gantry.replication import operations
from gantry.replication.hastate import MemberState, Role
from gantry.replication.record import Record
from gantry.replication.registerfile import FileRegister
from testkit.hamembers import CLUSTER, GROUP, GroupSim, fresh
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.turning import WITHIN_S

POLICY = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=2.0)


class Standing(GroupSim):
    """Member 0 stands still: a question to it ends only when both questions of a round have been asked."""

    both: asyncio.Event
    asked: set[str]

    async def _never(self, question: str) -> None:
        self.asked.add(question)
        if len(self.asked) == 2:
            self.both.set()
        await self.both.wait()

    async def state(self, ordinal: int) -> MemberState | None:
        return await self._never("state") if ordinal == 0 else await super().state(ordinal)

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        return await self._never("seal") if ordinal == 0 else await super().seal(ordinal, epoch)


async def sealed_group() -> tuple[Standing, Coordinator, SimClock]:
    """A group of which member 0 led epoch 1, and that was sealed since."""
    clock, register = SimClock(), FileRegister("/register/b0", SimDisk())
    group = Standing(register, {each: fresh(each, f"disk{each}") for each in range(3)})
    group.both, group.asked = asyncio.Event(), {"state", "seal"}
    group.both.set()
    begun = operations.bootstrap(CLUSTER, 6)
    for ordinal in range(3):
        assert isinstance(begun, Record)
        begun = operations.admit(begun, ordinal, f"disk{ordinal}")
    assert isinstance(begun, Record)
    states = [group.members[each].state for each in range(3)]
    led = operations.promote(begun, states[0].me, frozenset(state.member for state in states))
    assert isinstance(led, Record)
    seen = await register.create(led)
    for member in group.members.values():
        member.state = replace(member.state, role=Role.SLAVE, epoch=1, promise=1, last_epoch=1, log_end=10)
    sealed = operations.seal(led)
    assert isinstance(sealed, Record)
    await register.write(sealed, seen.version)
    group.both, group.asked = asyncio.Event(), set()
    coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), POLICY), register, group, clock, lambda _: None)
    return group, coordinator, clock


def test_a_member_that_stands_still_costs_a_round_one_timeout_and_not_one_for_each_question() -> None:
    async def act() -> None:
        group, coordinator, clock = await sealed_group()
        async with asyncio.timeout(WITHIN_S):
            await coordinator.round()
        assert group.asked == {"state", "seal"}
        clock.advance(400)
        decision = await coordinator.round()
        assert isinstance(decision, Promote) and decision.chosen.member.ordinal == 1, "after a fifth of the patience"

    asyncio.run(act())


@pytest.mark.parametrize(
    ("took_s", "rest"), [(0.0, 0.25), (0.2, 0.05), (0.5, 0.05)], ids=["at once", "slowly", "not in time"]
)
def test_rounds_begin_each_period_and_never_without_a_pause(took_s: float, rest: float) -> None:
    assert rest_s(0.25, took_s) == pytest.approx(rest)
