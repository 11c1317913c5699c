"""A coordinator, a register in a file, and members: a group's life through its faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gantry.failover.coordinator import Coordinator, Group
from gantry.failover.decide import Blocked, Decision, Forced, Policy, Seal, Wait
from gantry.replication.hastate import MemberRole
from gantry.replication.members import Member, incarnation_of, parse_set
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from gantry.replication.registerfile import FileRegister
from testkit.hamembers import CLUSTER, GROUP, GroupSim, fresh
from testkit.registers import LossyRegister
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

POLICY = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=5.0)
PATH = "/register/b0"


class Play:
    """One group of three and as many coordinators as one likes."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.disk = SimDisk()
        self.register = LossyRegister(FileRegister(PATH, self.disk))
        self.group = GroupSim(self.register, {each: fresh(each, f"disk{each}") for each in range(3)})
        self.told: list[Decision] = []

    def coordinator(self, **changes: object) -> Coordinator:
        group = Group(CLUSTER, GROUP, (0, 1, 2), POLICY)
        return Coordinator(
            replace(group, **changes), self.register, self.group, self.clock, self.told.append  # type: ignore[arg-type]
        )

    async def rounds(self, coordinator: Coordinator, count: int) -> Decision:
        decision: Decision = Wait("")
        for _ in range(count):
            decision = await coordinator.round()
            self.clock.advance(1000)
        return decision

    async def record(self) -> RegisterRecord:
        seen = await self.register.read()
        assert seen is not None
        return seen.record

    async def begin(self) -> Coordinator:
        """A group at work: epoch 1, member 0 leads, 1000 bytes confirmed."""
        coordinator = self.coordinator()
        await self.rounds(coordinator, 3)
        await self.group.everybody_looks()
        await self.group.renew(1000)
        return coordinator


async def test_a_new_group_gets_a_register_and_a_master() -> None:
    play = Play()
    await play.begin()
    record = await play.record()
    assert (record.epoch, record.phase, str(record.holder)) == (1, Phase.ACTIVE, "0.0/p0-0")
    assert record.in_sync == parse_set("0.0,1.0,2.0") and play.group.nudged == [0]


async def test_a_master_that_is_gone_is_followed_by_the_furthest_of_the_set() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[0].is_up = False
    play.group.members[2].state = replace(play.group.members[2].state, log_end=1007)
    assert isinstance(await play.rounds(coordinator, 4), Wait)
    await play.rounds(coordinator, 5)
    record = await play.record()
    assert (record.epoch, str(record.holder)) == (2, "2.0/p2-0")
    assert record.in_sync == parse_set("1.0,2.0")


async def test_the_next_coordinator_goes_on_after_a_seal() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[0].is_up = False
    while (await play.record()).phase is Phase.ACTIVE:
        await play.rounds(coordinator, 1)
    assert (await play.record()).phase is Phase.SEALED  # and here it dies
    await play.rounds(play.coordinator(), 3)
    record = await play.record()
    assert (record.epoch, str(record.holder)) == (2, "1.0/p1-0")


async def test_a_new_coordinator_suspects_nobody_before_it_has_watched_itself() -> None:
    play = Play()
    await play.begin()
    play.group.members[0].is_up = False
    play.clock.advance(60_000)
    assert isinstance(await play.rounds(play.coordinator(), 5), Wait)


async def test_two_coordinators_cost_no_more_than_an_epoch() -> None:
    play = Play()
    one, other = await play.begin(), play.coordinator()
    await other.round()
    play.group.members[0].is_up = False
    for _ in range(12):
        await asyncio.gather(one.round(), other.round())
        play.clock.advance(1000)
    record = await play.record()
    assert record.phase is Phase.ACTIVE and record.epoch in (2, 3)
    assert record.holder is not None and record.holder.member.ordinal == 1


async def test_answers_that_are_lost_change_nothing() -> None:
    play = Play()
    coordinator = await play.begin()
    play.register.loses_answers = True
    play.group.members[0].is_up = False
    await play.rounds(coordinator, 10)
    record = await play.record()
    assert (record.epoch, str(record.holder)) == (2, "1.0/p1-0")


async def test_a_master_that_renews_and_cannot_be_asked_stays() -> None:
    play = Play()
    coordinator = await play.begin()
    for second in range(20):
        await play.group.renew(1001 + second)
        play.group.members[0].is_up = False
        await play.rounds(coordinator, 1)
        play.group.members[0].is_up = True
    assert (await play.record()).epoch == 1 and not any(isinstance(each, Seal) for each in play.told)


async def test_an_observer_who_is_cut_off_does_nothing() -> None:
    play = Play()
    coordinator = await play.begin()
    for member in play.group.members.values():
        member.is_up = False
    assert isinstance(await play.rounds(coordinator, 30), Blocked)
    assert (await play.record()).epoch == 1


async def test_a_register_that_was_deleted_is_recovered_from_every_member() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[1].state = replace(play.group.members[1].state, log_end=1009)
    play.disk.unlink(PATH)
    play.disk.unlink(f"{PATH}.bak")
    play.group.members[2].is_up = False
    assert isinstance(await play.rounds(coordinator, 5), Blocked)
    play.group.members[2].is_up = True
    await play.rounds(coordinator, 4)
    record = await play.record()
    assert (record.epoch, record.phase, str(record.holder)) == (2, Phase.ACTIVE, "1.0/p1-0")


async def test_an_empty_disk_under_a_known_ordinal_is_admitted_with_a_number_of_its_own() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[2] = fresh(2, "another")
    await play.rounds(coordinator, 1)
    record = await play.record()
    assert record.epoch == 1 and record.store(2) is not None
    await play.group.look(2)
    assert play.group.members[2].state.member.incarnation == 4096
    assert record.in_sync == parse_set("0.0,1.0,2.0")  # its place is the master's to give, by REPLACE


async def test_an_empty_disk_that_was_asked_for_its_promise_first_is_admitted_all_the_same() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[0] = fresh(0, "another")  # the master's disk was replaced
    await play.rounds(coordinator, 9)
    record = await play.record()
    assert (record.epoch, str(record.holder)) == (2, "1.0/p1-0")
    assert play.group.members[0].state.promise == 2
    await play.group.look(1)
    await play.rounds(coordinator, 1)
    store = (await play.record()).store(0)
    assert store is not None and store.uid == "another" and store.disk == 1


async def test_a_disk_that_was_replaced_after_its_promise_is_asked_again() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[0].is_up = False
    while (await play.record()).phase is Phase.ACTIVE:
        await play.rounds(coordinator, 1)
    play.group.members[2].is_up = False  # it may come back in a moment, so nobody leads yet
    await coordinator.round()
    assert play.group.members[1].state.promise == 2
    play.group.members[1] = fresh(1, "another")
    assert isinstance(await play.rounds(coordinator, 5), Blocked)
    assert play.group.members[1].state.promise == 2
    play.group.members[2].is_up = True
    await play.rounds(coordinator, 3)
    assert str((await play.record()).holder) == "2.0/p2-0"


async def test_a_process_that_answers_in_the_masters_place_and_does_not_lead_is_no_master_that_is_well() -> None:
    play = Play()
    coordinator = await play.begin()
    member = play.group.members[0]
    member.state = replace(member.state, me=Holder(member.state.member, "restarted"), role=MemberRole.NONE)
    assert isinstance(await play.rounds(coordinator, 4), Wait)
    await play.rounds(coordinator, 5)
    assert (await play.record()).epoch == 2


async def test_somebody_elses_answer_is_no_answer() -> None:
    play = Play()
    coordinator = await play.begin()
    play.group.members[0].state = replace(play.group.members[0].state, cluster_uid="other")
    await play.rounds(coordinator, 9)
    assert (await play.record()).epoch == 2


async def test_a_disk_that_is_replaced_before_there_was_a_master_is_admitted_and_the_group_begins() -> None:
    play = Play()
    coordinator = play.coordinator()
    await play.rounds(coordinator, 1)  # the register is made, with the three disks of now
    assert (await play.record()).phase is Phase.BOOTSTRAPPING
    play.group.members[2] = fresh(2, "another-disk")
    await play.rounds(coordinator, 2)
    # The member reads the number that its disk was given.
    member = play.group.members[2]
    me = Holder(Member(2, incarnation_of(1, 0)), member.state.me.process)
    member.state = replace(member.state, me=me)
    await play.rounds(coordinator, 4)
    record = await play.record()
    assert record.phase is Phase.ACTIVE and record.store(2) == MemberDisk("another-disk", 1)


async def test_another_lease_is_written_while_the_group_is_well_and_renewals_go_on() -> None:
    play = Play()
    await play.begin()
    await play.rounds(play.coordinator(lease_duration_s=6), 2)
    await play.group.renew(2000)
    record = await play.record()
    assert (record.lease_duration_s, record.confirm_floor, record.epoch) == (6, 2000, 1)


async def test_whom_a_person_chose_leads_the_next_epoch_and_the_choice_is_used_up() -> None:
    play = Play()
    await play.begin()
    chosen = play.coordinator(policy=replace(POLICY, forced=Forced(2, 1)))
    await play.rounds(chosen, 6)
    record = await play.record()
    assert record.epoch == 2 and record.holder is not None and record.holder.member.ordinal == 2
    await play.group.everybody_looks()
    await play.group.renew(3000)
    await play.rounds(chosen, 6)
    assert (await play.record()).epoch == 2
