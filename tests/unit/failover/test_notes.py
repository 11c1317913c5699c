"""What a coordinator remembers of silence and of promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.failover.decide import Observed, Policy, Seal, Wait, decide
from gantry.failover.notes import Notes
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member
from gantry.replication.record import Holder, Phase
from gantry.replication.register import Seen
from gantry.replication.timers import TIMERS, Timers, derive_serving_waits, derive_usual_timers
from testkit.registers import ACTIVE, ME

FAST = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=2.0)
SEALED = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)
NOBODY: frozenset[int] = frozenset()


def notes() -> Notes:
    made = Notes((0, 1, 2), FAST)
    made.read(Seen(ACTIVE, "1"), 100.0)
    return made


def master(made: Notes) -> Observed:
    return made.snapshot(ACTIVE, {}).members[0]


def promised(process: str, promise: int) -> MemberState:
    me = Holder(Member(1, 0), process)
    return MemberState("1f0e7d", "b0", "77aa", me, MemberRole.NONE, 4, promise, 4, 0, 10, 10, False)


def test_silence_began_with_the_last_question_that_was_answered_and_lasts_until_an_answer() -> None:
    made = notes()
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.0, now_s=101.5)
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.5, now_s=102.0)
    assert master(made).unwell_since_s == 101.0, "nothing is known of the time before it watched"
    well = replace(promised("", 4), me=ME, role=MemberRole.MASTER, is_writable=True)
    made.observe(ACTIVE, {0: well}, NOBODY, asked_s=102.0, now_s=102.1)
    assert master(made).unwell_since_s is None
    for asked_s in (102.25, 102.5):
        made.observe(ACTIVE, {}, NOBODY, asked_s, asked_s + 0.01)
    assert master(made).unwell_since_s == 102.0, "it may have died right after its answer"


def test_a_master_that_stays_in_a_lower_epoch_than_the_registers_is_suspected() -> None:
    made = notes()
    former = replace(promised("", 3), me=ME, role=MemberRole.MASTER, epoch=ACTIVE.epoch - 1, is_writable=True)
    made.observe(ACTIVE, {0: former}, NOBODY, asked_s=101.0, now_s=101.1)
    assert master(made).unwell_since_s == 101.0


def test_a_renewal_came_before_the_reading_that_shows_it_and_a_lease_lasts_from_that_reading_on() -> None:
    made = notes()
    seen = made.snapshot(ACTIVE, {})
    assert (seen.unchanged_since_s, seen.quiet_since_s) == (100.0, None), "nothing was read before"
    made.read(Seen(ACTIVE, "1"), 100.75)
    made.read(Seen(ACTIVE, "2"), 101.0)
    made.read(Seen(ACTIVE, "2"), 101.25)
    seen = made.snapshot(ACTIVE, {})
    assert (seen.unchanged_since_s, seen.quiet_since_s) == (101.0, 100.75)


@pytest.mark.parametrize("timers", [*TIMERS.values(), derive_usual_timers(0.5), derive_usual_timers(20.0)])
def test_no_serving_lease_outlasts_the_suspicion_when_the_register_could_not_be_read_for_long(timers: Timers) -> None:
    made = Notes((0, 1, 2), replace(FAST, suspect_after_s=timers.suspect_after_s))
    made.read(Seen(ACTIVE, "1"), 100.0)
    renewed_s = 100.0 + 3 * timers.suspect_after_s  # it was sent then, and read at once
    made.read(Seen(ACTIVE, "2"), renewed_s)
    made.observe(ACTIVE, {}, NOBODY, asked_s=100.0, now_s=renewed_s)
    late_s = renewed_s + derive_serving_waits(timers.renew_every_s).fresh_s
    heirs = {each: replace(promised("", 4), me=Holder(Member(each, 0), ""), role=MemberRole.SLAVE) for each in (1, 2)}
    assert type(decide(made.snapshot(ACTIVE, heirs), late_s)) is Wait
    assert type(decide(made.snapshot(ACTIVE, heirs), late_s + timers.suspect_after_s / 4)) is Seal


def test_an_observer_that_stood_still_itself_suspects_nobody_for_one_question() -> None:
    made = notes()
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.0, now_s=111.0)
    assert master(made).unwell_since_s == 110.5


def test_who_comes_back_as_another_process_without_its_promise_is_asked_again() -> None:
    made = notes()
    made.read(Seen(SEALED, "2"), 103.0)
    made.answered_seal(promised("p1", 5), 103.1)
    assert made.unsealed() == [0, 2]
    made.observe(SEALED, {1: promised("p2", 5)}, NOBODY, 103.0, 103.2)
    assert made.unsealed() == [0, 2], "its promise is on the disk"
    made.observe(SEALED, {1: promised("p3", 4)}, NOBODY, 103.4, 103.5)
    assert made.unsealed() == [0, 1, 2]


LEADER = replace(promised("", 4), store_uid="8f1c", me=ME, role=MemberRole.MASTER, is_writable=True, log_end=2_000_000)
SLAVE = replace(promised("p1", 4), role=MemberRole.SLAVE, epoch=4, log_end=2_000_000)


def test_masterships_in_vain_are_counted_until_a_master_serves() -> None:
    made = notes()
    assert made.snapshot(ACTIVE, {}).tried == {0: 1}
    made.observe(ACTIVE, {0: LEADER}, NOBODY, 100.0, 100.0)
    assert made.snapshot(ACTIVE, {}).tried == {0: 1}, "nobody follows it yet"
    made.observe(ACTIVE, {0: LEADER, 1: SLAVE}, NOBODY, 100.5, 100.5)
    assert made.snapshot(ACTIVE, {}).tried == {}
    made.read(Seen(SEALED, "2"), 103.0)
    led = replace(SEALED, phase=Phase.ACTIVE, holder=SLAVE.me)
    for version in "34":
        made.read(Seen(led, version), 104.0)
        made.observe(led, {}, NOBODY, 104.0, 104.0)
    assert made.snapshot(led, {}).tried == {1: 1}, "a renewal is no other mastership"
    made.read(Seen(replace(SEALED, epoch=6), "5"), 105.0)
    made.read(Seen(replace(led, epoch=6), "6"), 105.0)
    assert made.snapshot(led, {}).tried == {1: 2}


def test_a_process_that_is_started_again_again_and_again_is_counted_and_not_waited_for_any_longer() -> None:
    made, now_s = notes(), 101.0
    restarted = [replace(ACTIVE, epoch=epoch, holder=Holder(ME.member, f"q{epoch}")) for epoch in range(5, 9)]
    for number, record in enumerate(restarted[:3], 1):
        made.read(Seen(record, f"{record.epoch}"), now_s)
        slave, master = replace(SLAVE, epoch=record.epoch), replace(LEADER, epoch=record.epoch, me=record.holder)
        for served_s in (0.0, 1.9):
            made.observe(record, {0: master, 1: slave}, NOBODY, now_s + served_s, now_s + served_s)
        assert made.snapshot(record, {}).restarts == number, "it served for less than the time of suspicion"
        made.observe(record, {1: slave}, NOBODY, now_s + 1.95, now_s + 1.95)
        now_s += 2.0
    made.read(Seen(restarted[3], "8"), now_s)
    seen = made.snapshot(restarted[3], {})
    assert (seen.restarts, seen.tried) == (4, {0: 1}), "another one is elected next"
    led = replace(ACTIVE, epoch=9, holder=SLAVE.me)
    made.read(Seen(replace(led, phase=Phase.SEALED, holder=None), "9"), now_s)
    made.read(Seen(led, "10"), now_s)
    assert made.snapshot(led, {}).restarts == 0


def test_a_master_that_serves_for_the_time_of_suspicion_begins_again_to_be_counted() -> None:
    made = notes()
    again = replace(ACTIVE, epoch=5, holder=Holder(ME.member, "q"))
    made.read(Seen(again, "2"), 101.0)
    master, slave = replace(LEADER, epoch=5, me=again.holder), replace(SLAVE, epoch=5)
    for now_s, restarts in ((101.0, 1), (102.9, 1), (103.0, 0)):
        made.observe(again, {0: master, 1: slave}, NOBODY, now_s, now_s)
        assert made.snapshot(again, {}).restarts == restarts


def test_a_master_that_takes_no_writes_and_one_that_was_sealed_short_of_slaves_count_as_tried() -> None:
    made = notes()
    made.observe(ACTIVE, {0: LEADER, 1: SLAVE}, NOBODY, 100.0, 100.0)
    made.observe(ACTIVE, {0: replace(LEADER, is_writable=False), 1: SLAVE}, NOBODY, 101.0, 101.0)
    assert made.snapshot(ACTIVE, {}).tried == {0: 1}, "its disk hangs: its log may be the longest"
    other = Notes((0, 1, 2), FAST)
    other.read(Seen(SEALED, "2"), 100.0)  # a coordinator that did not see who led
    short = replace(LEADER, role=MemberRole.NONE, is_writable=False, is_short=True)
    other.observe(SEALED, {0: short, 1: replace(SLAVE, role=MemberRole.NONE)}, NOBODY, 100.0, 100.0)
    assert other.snapshot(SEALED, {}).tried == {0: 1}


def test_a_master_is_cut_off_since_its_slaves_were_seen_without_it_and_counts_as_tried() -> None:
    made = notes()
    alone = [replace(SLAVE, role=MemberRole.NONE, me=Holder(Member(1, 0), "p1"))]
    alone.append(replace(alone[0], me=Holder(Member(2, 0), "p2"), store_uid="c09d"))
    states = {0: replace(LEADER, is_short=True), 1: alone[0], 2: alone[1]}
    made.observe(ACTIVE, {0: LEADER, 1: SLAVE}, NOBODY, 100.0, 100.0)
    for now_s in (101.0, 102.0):
        made.observe(ACTIVE, states, NOBODY, now_s, now_s)
    seen = made.snapshot(ACTIVE, states)
    assert (seen.cut_off_since_s, seen.tried) == (101.0, {0: 1})
    follow = {ordinal: replace(states[ordinal], role=MemberRole.SLAVE) for ordinal in (1, 2)}
    made.observe(ACTIVE, states | follow, NOBODY, 103.0, 103.0)
    assert made.snapshot(ACTIVE, states).cut_off_since_s is None
    made.observe(ACTIVE, states, NOBODY, 104.0, 104.0)
    made.read(Seen(SEALED, "2"), 105.0)
    assert made.snapshot(SEALED, states).cut_off_since_s is None


def test_a_slow_disk_is_reason_to_hand_over_at_once_for_the_master_has_measured_it() -> None:
    made, slow = notes(), {0: replace(LEADER, is_disk_late=True), 1: SLAVE}
    made.observe(ACTIVE, slow, NOBODY, 101.0, 101.0)
    assert made.snapshot(ACTIVE, slow, 101.0).burdened_since_s == 101.0 - FAST.suspect_after_s


def test_a_master_with_late_links_is_cut_off_and_the_next_ones_ever_more_rarely() -> None:
    made, late = notes(), replace(LEADER, are_links_late=True)
    slaves = {1: SLAVE, 2: replace(SLAVE, me=Holder(Member(2, 0), "p2"), store_uid="c09d")}

    def since_s(now_s: float, states: dict[int, MemberState]) -> float | None:
        made.observe(ACTIVE, states, NOBODY, now_s, now_s)
        return made.snapshot(ACTIVE, states, now_s).cut_off_since_s

    assert since_s(101.0, {0: late, 1: SLAVE}) is None, "one slave could not confirm without it"
    version = 2
    for soonest_s in (101.0, 131.0, 191.0, 311.0):
        if version > 2:
            assert since_s(soonest_s - 0.1, {0: late} | slaves) is None
        assert since_s(soonest_s, {0: late} | slaves) == soonest_s - FAST.suspect_after_s, "the master has measured it"
        found = decide(made.snapshot(ACTIVE, {0: late} | slaves, soonest_s), soonest_s)
        assert isinstance(found, Seal) and "links to its slaves that are too slow" in found.reason
        for record in (SEALED, ACTIVE):
            made.read(Seen(record, str(version)), soonest_s)
            version += 1


def test_a_master_with_late_links_that_was_elected_again_and_again_is_cut_off_as_well() -> None:
    made, late = notes(), replace(LEADER, epoch=6, are_links_late=True)
    slaves = {1: SLAVE, 2: replace(SLAVE, me=Holder(Member(2, 0), "p2"), store_uid="c09d")}
    for epoch in (5, 6):
        made.read(Seen(replace(SEALED, epoch=epoch), f"{epoch} sealed"), 101.0)
        made.read(Seen(replace(ACTIVE, epoch=epoch), str(epoch)), 101.0)
    led, states = replace(ACTIVE, epoch=6), {0: late} | slaves
    made.observe(led, states, NOBODY, 102.0, 102.0)
    seen = made.snapshot(led, states, 102.0)
    assert seen.tried == {0: 3}, "it never served in between"
    assert isinstance(decide(seen, 102.0), Seal)


def test_a_full_disk_is_told_since_it_was_seen_and_not_again_soon_after_a_handover() -> None:
    made, full = notes(), {0: replace(LEADER, is_disk_full=True), 1: SLAVE}
    for now_s in (101.0, 102.0):
        made.observe(ACTIVE, full, NOBODY, now_s, now_s)
    assert made.snapshot(ACTIVE, full, 102.0).burdened_since_s == 101.0
    made.handed_over(103.0)
    assert made.snapshot(ACTIVE, full, 132.9).burdened_since_s is None
    assert made.snapshot(ACTIVE, full, 133.0).burdened_since_s == 101.0
    for now_s, since_s in ((103.9, 101.0), (104.0, None)):
        made.observe(ACTIVE, {0: LEADER, 1: SLAVE}, NOBODY, now_s, now_s)
        assert made.snapshot(ACTIVE, full, 134.0).burdened_since_s == since_s, "room for a moment is no room"
