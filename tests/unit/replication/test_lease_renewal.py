"""A mastership as the register knows it: what is written, what is believed, and when it is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gantry.replication import operations
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello
from gantry.replication.in_sync_tracker import InSyncPolicy, InSyncTracker, Term
from gantry.replication.lease_renewal import Handed, LeaseRenewal
from gantry.replication.members import Member, SyncSet, parse_set
from gantry.replication.record import Holder, RegisterRecord
from gantry.replication.register import RegisterUnavailableError, Seen
from gantry.replication.register_writer import RegisterWriter
from gantry.replication.registerfile import FileRegister
from gantry.replication.serving_lease import ServingLease
from gantry.wire.ha import Ack
from testkit.patience import HANG_S
from testkit.registers import ACTIVE, ME, LossyRegister
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

END = 2_000_000


class Play:
    """A master of three in epoch 4, with everything acknowledged."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.inner = FileRegister("/register/b0", SimDisk())
        self.register = LossyRegister(self.inner)
        self.tracker = InSyncTracker(
            END, END, Term(4, ME.member, ACTIVE.in_sync), InSyncPolicy(min_in_sync=1), lambda _: None
        )
        self.serving_lease = ServingLease(100.0, 3.0)
        self.settled: list[SyncSet] = []
        self.lease_renewal = self.renewal(self.register)

    def renewal(self, register: LossyRegister) -> LeaseRenewal:
        writer = RegisterWriter(register, self.clock, 0.01)
        return LeaseRenewal(writer, ME, self.tracker, self.serving_lease, self.clock, None, self._settled)

    def _settled(self, members: SyncSet) -> None:
        self.settled.append(members)
        self.tracker.settled(members, self.clock.monotonic())

    async def record(self) -> RegisterRecord:
        seen = await self.inner.read()
        assert seen is not None
        return seen.record

    async def reads(self, times: int) -> None:
        """Wait until the register was read so often from now on."""
        self.register.is_read.clear()
        for _ in range(times + 1):  # one may have begun before
            await self.register.is_read.wait()
            self.register.is_read.clear()

    async def put(self, record: RegisterRecord) -> None:
        seen = await self.inner.read()
        assert seen is not None
        await self.inner.write(record, seen.version)

    def slave_leaves(self, ordinal: int) -> None:
        self.tracker.meet(hello(ordinal), "there", self.clock.monotonic(), 0)
        self.tracker.lose(ordinal, True, self.clock.monotonic())


def hello(ordinal: int) -> Hello:
    return Hello("1f0e7d", "b0", ordinal, f"store-{ordinal}", EpochTable(), 0, END, 0, 4096, 0, 0, "p")


async def begun() -> Play:
    one = Play()
    await one.inner.create(ACTIVE)
    return one


async def test_a_renewal_says_how_far_the_log_is_confirmed_and_gives_the_serving_lease() -> None:
    one = await begun()
    one.clock.advance(5_000)
    await one.lease_renewal.renew()
    assert (await one.record()).confirm_floor == END
    assert one.serving_lease.is_valid(14.9) and not one.serving_lease.is_valid(15.0)


async def test_a_serving_lease_lasts_from_the_moment_at_which_the_renewal_was_sent() -> None:
    one = await begun()
    inner = one.register.write

    async def slow(record: RegisterRecord, version: str) -> Seen:
        one.clock.advance(4_000)
        return await inner(record, version)

    one.register.write = slow  # type: ignore[method-assign]
    await one.lease_renewal.renew()
    assert one.serving_lease.is_valid(9.9) and not one.serving_lease.is_valid(10.0)


async def test_a_change_of_the_set_counts_when_the_register_holds_it() -> None:
    one = await begun()
    one.slave_leaves(2)
    assert Member(2, 0) in one.tracker.insync.required
    await one.lease_renewal.renew()
    assert (await one.record()).in_sync == parse_set("0.0,1.0") == one.tracker.insync.required


async def test_while_the_outcome_is_unknown_who_leaves_is_still_needed() -> None:
    one = await begun()
    one.slave_leaves(2)
    one.register.loses_answers = True
    await one.lease_renewal.renew()
    assert Member(2, 0) in one.tracker.insync.required and not one.settled
    assert not one.serving_lease.is_valid(0.1), "nor is a serving lease taken from it"
    one.register.loses_answers = False
    await one.lease_renewal.renew()
    assert one.tracker.insync.required == parse_set("0.0,1.0")


async def test_a_register_that_answers_late_for_ever_takes_every_change_and_gives_the_lease() -> None:
    """Each write is carried out, no answer comes in time, reads are quick."""
    one = await begun()
    one.register.loses_answers = True
    one.slave_leaves(2)
    for round_ in range(40):
        await one.lease_renewal.renew()
        assert one.lease_renewal.is_open and not one.lease_renewal.is_lost
        if round_:
            assert one.tracker.insync.required == parse_set("0.0,1.0")
            assert one.serving_lease.is_valid(one.clock.monotonic()), "from when the former renewal was sent"
        one.clock.advance(2_500)


async def test_a_change_that_was_not_sent_yet_is_not_given_up() -> None:
    one = await begun()
    one.register.loses_answers = True
    await one.lease_renewal.renew()
    one.slave_leaves(2)
    await one.lease_renewal.renew()
    assert not one.settled and one.tracker.insync.change is not None
    await one.lease_renewal.renew()
    assert one.settled == [parse_set("0.0,1.0")]


async def test_reading_what_was_written_on_proves_nothing() -> None:
    one = await begun()
    one.slave_leaves(2)
    one.register.keeps_back = True
    for _ in range(3):
        await one.lease_renewal.renew()
    assert not one.settled and Member(2, 0) in one.tracker.insync.required
    assert not one.serving_lease.is_valid(0.1)
    assert await one.register.deliver(), "it was under way all the time"
    one.register.keeps_back = True
    await one.lease_renewal.renew()
    assert one.tracker.insync.required == parse_set("0.0,1.0")


async def test_another_ones_write_proves_that_ours_is_over_and_gives_no_lease() -> None:
    one = await begun()
    one.slave_leaves(2)
    one.register.keeps_back = True
    await one.lease_renewal.renew()
    await one.put(replace(await one.record(), lease_duration_s=12))
    await one.lease_renewal.renew()
    assert one.settled == [ACTIVE.in_sync], "as the register shows it"
    assert not one.serving_lease.is_valid(0.1)


async def test_a_lease_counts_from_when_the_request_was_sent_that_was_carried_out() -> None:
    one = await begun()
    one.register.keeps_back = True
    await one.lease_renewal.renew()
    one.clock.advance(2_500)
    await one.lease_renewal.renew()
    assert await one.register.deliver(), "the older one comes first"
    one.clock.advance(1_000)
    await one.lease_renewal.renew()
    assert one.serving_lease.is_valid(12.4) and not one.serving_lease.is_valid(12.5), "it was not there after 2.5 s"


async def test_a_renewal_is_over_as_soon_as_a_reading_shows_it() -> None:
    """No answer ever comes; the register has carried the write out."""
    one = await begun()
    one.register.answers_never = True
    one.slave_leaves(2)
    for _ in range(3):
        async with asyncio.timeout(HANG_S):
            await one.lease_renewal.renew()
        assert not one.lease_renewal.is_open and not one.lease_renewal.why
        assert one.tracker.insync.required == parse_set("0.0,1.0")
        assert one.serving_lease.is_valid(one.clock.monotonic() + 9.9)
        one.clock.advance(2_500)


async def test_a_renewal_under_way_counts_from_the_last_reading_that_did_not_show_it() -> None:
    one = await begun()
    one.register.answers_never = one.register.keeps_back = True
    renewing = asyncio.create_task(one.lease_renewal.renew())
    async with asyncio.timeout(HANG_S):
        await one.reads(2)
        one.clock.advance(6_000)
        await one.reads(2)
        assert not renewing.done() and not one.serving_lease.is_valid(0.1)
        await one.register.deliver()
        await renewing
    assert one.serving_lease.is_valid(15.9) and not one.serving_lease.is_valid(16.0)


async def test_a_write_that_another_one_forestalled_is_tried_again_without_waiting_for_its_answer() -> None:
    one = await begun()
    one.register.answers_never = one.register.keeps_back = True
    renewing = asyncio.create_task(one.lease_renewal.renew())
    async with asyncio.timeout(HANG_S):
        await one.reads(1)
        one.register.keeps_back = False
        await one.put(replace(await one.record(), lease_duration_s=12))
        await renewing
    assert one.serving_lease.is_valid(7.9) and not one.serving_lease.is_valid(8.0), "two thirds of the new lease"
    assert (await one.record()).confirm_floor == END


async def test_a_renewal_that_is_given_up_leaves_no_request_behind() -> None:
    one = await begun()
    one.register.answers_never = one.register.keeps_back = True
    renewing = asyncio.create_task(one.lease_renewal.renew())
    async with asyncio.timeout(HANG_S):
        await one.reads(1)
        renewing.cancel()
        await asyncio.wait({renewing})
    assert renewing.cancelled() and asyncio.all_tasks() == {asyncio.current_task()}


async def test_every_renewal_is_told_from_all_others_whatever_the_clock_does() -> None:
    one, times = await begun(), set()
    for _ in range(3):
        await one.lease_renewal.renew()
        times.add((await one.record()).renewed_ms)
    assert len(times) == 3 and min(times) > ACTIVE.renewed_ms


async def test_a_late_write_of_ours_is_outlived_by_the_next_one() -> None:
    one = await begun()
    one.slave_leaves(2)
    one.register.keeps_back = True
    await one.lease_renewal.renew()
    one.register.keeps_back = False
    await one.lease_renewal.renew()
    assert not await one.register.deliver()
    assert one.settled == [parse_set("0.0,1.0")] and (await one.record()).in_sync == parse_set("0.0,1.0")


async def test_a_late_write_of_ours_that_arrives_first_is_a_conflict_and_the_renewal_is_done_again() -> None:
    one = await begun()
    one.slave_leaves(2)
    one.register.keeps_back = True
    await one.lease_renewal.renew()
    one.register.keeps_back = False
    assert await one.register.deliver()
    await one.lease_renewal.renew()
    assert one.tracker.insync.required == parse_set("0.0,1.0") and not one.lease_renewal.is_lost


async def test_somebody_elses_epoch_ends_the_term_and_nothing_is_written() -> None:
    one = await begun()
    await one.lease_renewal.renew()
    sealed = operations.seal(await one.record())
    assert isinstance(sealed, RegisterRecord)
    await one.put(sealed)
    await one.lease_renewal.renew()
    assert one.lease_renewal.is_lost and await one.record() == sealed


async def test_a_change_that_the_register_does_not_allow_is_given_up_and_not_asked_for_at_once() -> None:
    one = await begun()
    one.slave_leaves(2)
    await one.lease_renewal.renew()
    stranger = replace(hello(2), incarnation=4096)  # a disk that was never admitted
    one.tracker.meet(stranger, "there", 0.0, 0)
    one.tracker.acknowledge(2, Ack(END, END, 0), END, 0.0)
    one.clock.advance(3_100)
    one.tracker.acknowledge(2, Ack(END, END, 0), END, 3.1)
    assert one.tracker.insync.change is not None
    await one.lease_renewal.renew()
    assert one.tracker.insync.change is None and one.tracker.insync.recorded == parse_set("0.0,1.0")
    assert "admitted" in one.lease_renewal.why
    one.tracker.acknowledge(2, Ack(END, END, 0), END, 3.2)
    assert one.tracker.insync.change is None, "not at once"


async def test_without_a_register_the_serving_lease_ends_by_itself() -> None:
    one = await begun()
    await one.lease_renewal.renew()

    class Down(LossyRegister):
        async def read(self) -> None:
            raise RegisterUnavailableError("down")

        async def write(self, record: RegisterRecord, version: str) -> None:  # type: ignore[override]
            raise RegisterUnavailableError("down")

    one.lease_renewal = one.renewal(Down(one.inner))
    one.clock.advance(9_000)
    await one.lease_renewal.renew()
    assert "down" in one.lease_renewal.why and not one.lease_renewal.is_lost
    assert one.serving_lease.is_valid(9.9) and not one.serving_lease.is_valid(10.0)


async def test_a_handover_names_the_target_in_the_next_epoch_and_ends_the_term() -> None:
    one = await begun()
    target = Holder(Member(1, 0), "q1")
    assert await one.lease_renewal.hand_over(target) is Handed.DONE
    record = await one.record()
    assert (record.epoch, record.holder, record.in_sync) == (5, target, ACTIVE.in_sync) and one.lease_renewal.is_lost


async def test_a_handover_of_a_master_that_stops_leaves_those_who_stay_in_sync() -> None:
    one = await begun()
    assert await one.lease_renewal.hand_over(Holder(Member(1, 0), "q1"), is_leaving=True) is Handed.DONE
    assert (await one.record()).in_sync == ACTIVE.in_sync - {ME.member}


async def test_a_handover_is_done_as_soon_as_a_reading_shows_it() -> None:
    one = await begun()
    one.register.answers_never = True
    async with asyncio.timeout(HANG_S):
        assert await one.lease_renewal.hand_over(Holder(Member(1, 0), "q1")) is Handed.DONE
    assert one.lease_renewal.is_lost


async def test_a_handover_that_a_seal_forestalled_is_refused_without_waiting_for_its_answer() -> None:
    one = await begun()
    one.register.answers_never = one.register.keeps_back = True
    handing = asyncio.create_task(one.lease_renewal.hand_over(Holder(Member(1, 0), "q1")))
    async with asyncio.timeout(HANG_S):
        await one.reads(1)
        sealed = operations.seal(await one.record())
        assert isinstance(sealed, RegisterRecord)
        await one.put(sealed)
        assert await handing is Handed.REFUSED
    assert one.lease_renewal.is_lost and await one.record() == sealed


async def test_a_handover_without_an_answer_is_unknown_and_one_to_a_stranger_is_refused() -> None:
    one = await begun()
    assert await one.lease_renewal.hand_over(Holder(Member(3, 0), "x")) is Handed.REFUSED
    assert not one.lease_renewal.is_lost
    one.register.loses_answers = True
    assert await one.lease_renewal.hand_over(Holder(Member(1, 0), "q1")) is Handed.UNKNOWN
    one.register.loses_answers = False
    await one.lease_renewal.renew()
    assert one.lease_renewal.is_lost, "it was done"
