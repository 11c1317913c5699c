"""The decision, row by row of the behaviour matrix; broker/docs/failover.md, sections 4 and 7."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.failover.decide import (
    Blocked,
    Bootstrap,
    Decision,
    Observed,
    Policy,
    Promote,
    Recover,
    Seal,
    Snapshot,
    Wait,
    decide,
)
from gantry.failover.standing import HandOver
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member, parse_set
from gantry.replication.record import Holder, Phase, RegisterRecord
from testkit.registers import ACTIVE, ME

NOW = 1000.0
NONE = MemberRole.NONE
SYNC = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=5.0)
ASYNC = replace(SYNC, is_sync_master=False, min_in_sync=1)
UIDS = ("8f1c", "77aa", "c09d")
END = 2_000_000
SEALED = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)


def state(ordinal: int, **changes: object) -> MemberState:
    """A member in epoch 4; the master is 0."""
    me = ME if ordinal == 0 else Holder(Member(ordinal, 0), f"p{ordinal}")
    role = MemberRole.MASTER if ordinal == 0 else MemberRole.SLAVE
    found = MemberState("1f0e7d", "b0", UIDS[ordinal], me, role, 4, 4, 4, 0, END, END, ordinal == 0)
    return replace(found, **changes)  # type: ignore[arg-type]


def promised(ordinal: int, **changes: object) -> MemberState:
    """A member's answer to the seal of epoch 5."""
    return state(ordinal, **({"role": MemberRole.NONE, "promise": 5, "is_writable": False} | changes))


def well(*ordinals: int) -> dict[int, Observed]:
    return {ordinal: Observed(ordinal, state(ordinal)) for ordinal in ordinals}


def silent(ordinal: int, since_s: float = 10.0) -> Observed:
    return Observed(ordinal, unwell_since_s=NOW - since_s)


def snapshot(
    members: dict[int, Observed],
    record: RegisterRecord | None = ACTIVE,
    policy: Policy = SYNC,
    unchanged_s: float = 10.0,
    **more: object,
) -> Snapshot:
    observed = tuple(members.get(ordinal, silent(ordinal)) for ordinal in range(policy.replicas))
    return Snapshot(record, NOW - unchanged_s, observed, policy, **more)  # type: ignore[arg-type]


def sealed(*answers: MemberState, record: RegisterRecord = SEALED, policy: Policy = SYNC, **more: object) -> Snapshot:
    members = {each.member.ordinal: Observed(each.member.ordinal, each, each) for each in answers}
    first_s = more.pop("first_s", 2.0)
    for ordinal in set(range(policy.replicas)) - members.keys():
        members[ordinal] = silent(ordinal, 1.0)
    return snapshot(members, record, policy, first_answer_s=NOW - float(str(first_s)), **more)  # type: ignore[arg-type]


def kind(decision: Decision) -> type:
    return type(decision)


# An open group


def test_a_master_that_is_well_vetoes_whatever_the_register_looks_like() -> None:
    assert kind(decide(snapshot(well(0), unchanged_s=3600.0), NOW)) is Wait


def test_a_master_that_is_gone_is_sealed_after_the_time_of_suspicion() -> None:
    members = well(1, 2)
    assert kind(decide(snapshot(members | {0: silent(0, 4.9)}), NOW)) is Wait
    assert kind(decide(snapshot(members | {0: silent(0, 5.0)}), NOW)) is Seal


def test_a_master_that_renews_is_alive_whatever_the_observer_sees() -> None:
    assert kind(decide(snapshot(well(1, 2), unchanged_s=4.9), NOW)) is Wait


def test_the_register_is_quiet_since_the_last_reading_before_its_version_came() -> None:
    gone = well(1, 2) | {0: silent(0, 5.0)}
    assert kind(decide(snapshot(gone, unchanged_s=4.5), NOW)) is Wait
    assert kind(decide(snapshot(gone, unchanged_s=4.5, quiet_since_s=NOW - 4.9), NOW)) is Wait
    assert kind(decide(snapshot(gone, unchanged_s=4.5, quiet_since_s=NOW - 5.0), NOW)) is Seal


def test_a_process_that_is_known_to_be_terminated_is_waited_for_no_longer() -> None:
    gone = Observed(0, unwell_since_s=NOW - 5.0, gone_since_s=NOW - 5.0)
    assert kind(decide(snapshot(well(1, 2) | {0: gone}, unchanged_s=1.0), NOW)) is Seal
    assert kind(decide(snapshot(well(1, 2) | {0: replace(gone, gone_since_s=NOW - 4.9)}, unchanged_s=1.0), NOW)) is Wait


@pytest.mark.parametrize(
    "changes",
    [{"is_writable": False}, {"role": MemberRole.NONE}, {"epoch": 3}, {"me": Holder(ME.member, "restarted")}],
)
def test_a_master_that_answers_and_does_not_lead_is_not_well(changes: dict[str, object]) -> None:
    unwell = Observed(0, state(0, **changes), unwell_since_s=NOW - 6.0)
    assert kind(decide(snapshot(well(1, 2) | {0: unwell}), NOW)) is Seal


def test_when_nobody_answers_it_is_the_observer_who_is_cut_off() -> None:
    assert decide(snapshot({}), NOW) == Blocked("no member of the group answers")
    assert Blocked("why") != Seal("why")


@pytest.mark.parametrize(
    "record",
    [replace(ACTIVE, in_sync=parse_set("0.0")), replace(ACTIVE, in_sync=parse_set("0.0,1.1"))],
)
def test_a_group_with_nobody_to_elect_is_not_sealed(record: RegisterRecord) -> None:
    assert kind(decide(snapshot(well(1, 2), record), NOW)) is Blocked


def test_a_promise_for_a_handover_is_no_register_that_went_back() -> None:
    target = Observed(1, state(1, promise=5))
    assert kind(decide(snapshot(well(0, 2) | {1: target}), NOW)) is Wait


TAILS_LOST = {ordinal: Observed(ordinal, state(ordinal, me=Holder(Member(ordinal, 1), "p"))) for ordinal in range(3)}
UNWELL = replace(TAILS_LOST[0], unwell_since_s=NOW - 6.0)


def test_a_set_that_lost_its_newest_records_is_sealed_so_that_the_furthest_may_lead() -> None:
    everybody = TAILS_LOST | {0: UNWELL}
    assert kind(decide(snapshot(everybody), NOW)) is Seal
    by_hand = replace(SYNC, after_total_power_loss=False)
    assert kind(decide(snapshot(everybody, policy=by_hand), NOW)) is Blocked
    assert kind(decide(snapshot({0: UNWELL, 1: TAILS_LOST[1]}), NOW)) is Blocked
    assert kind(decide(snapshot({0: UNWELL} | well(1, 2)), NOW)) is Seal


def test_a_set_that_lost_every_disk_waits_for_a_person() -> None:
    others = {ordinal: state(ordinal, me=Holder(Member(ordinal, 4096), "p"), promise=5) for ordinal in range(3)}
    members = {ordinal: Observed(ordinal, other, unwell_since_s=NOW - 6.0) for ordinal, other in others.items()}
    assert kind(decide(snapshot(members), NOW)) is Blocked
    assert decide(sealed(*others.values()), NOW) == Blocked(
        "none of 0.0,1.0,2.0 has its disk any more; a person has to choose"
    )


# A sealed one


def test_the_furthest_member_of_the_set_is_promoted_and_the_others_stay_in_it() -> None:
    found = decide(sealed(promised(0), promised(1, log_end=END + 7), promised(2, log_end=END + 7)), NOW)
    assert found == Promote(state(1).me, parse_set("0.0,1.0,2.0")), "one more fault, and another one of them leads"


def test_a_later_epoch_counts_more_than_a_longer_log() -> None:
    found = decide(sealed(promised(0), promised(1, last_epoch=3, log_end=END + 9), promised(2, log_end=END - 9)), NOW)
    assert found == Promote(state(0).me, parse_set("0.0,1.0,2.0"))


def test_a_member_that_is_gone_since_it_promised_is_not_promoted() -> None:
    former, other = promised(1, log_end=END + 100), promised(2)
    members = {1: Observed(1, None, former), 2: Observed(2, other, other)}
    found = decide(snapshot(members, SEALED, first_answer_s=NOW - 2.0), NOW)
    assert isinstance(found, Promote) and found.chosen == other.me


def test_a_member_that_was_started_again_is_promoted_as_what_it_is_now() -> None:
    former = promised(1, log_end=END + 100)
    now = replace(former, me=Holder(Member(1, 0), "again"), log_end=END + 50)
    members = {1: Observed(1, now, former)}
    found = decide(snapshot(members, SEALED, first_answer_s=NOW - 2.0), NOW)
    assert isinstance(found, Promote) and found.chosen == now.me
    another_disk = replace(now, promise=0, log_end=0, store_uid="new")
    members = {1: Observed(1, another_disk, former)}
    assert kind(decide(snapshot(members, SEALED, first_answer_s=NOW - 2.0), NOW)) is Blocked


def test_a_promise_that_came_after_the_state_counts() -> None:
    members = {1: Observed(1, state(1), promised(1))}
    assert kind(decide(snapshot(members, SEALED, first_answer_s=NOW - 2.0), NOW)) is Promote


def test_among_equals_the_preferred_one_leads() -> None:
    found = decide(sealed(promised(0), promised(1), promised(2), policy=replace(SYNC, preferred=2)), NOW)
    assert found == Promote(state(2).me, parse_set("0.0,1.0,2.0"))


def test_more_answers_are_waited_for_a_moment() -> None:
    assert kind(decide(sealed(promised(1), first_s=0.9), NOW)) is Wait
    assert kind(decide(sealed(promised(1), first_s=1.0), NOW)) is Promote
    assert kind(decide(sealed(promised(0), promised(1), promised(2), first_s=0.0), NOW)) is Promote


def test_who_is_less_patient_waits_for_more_answers_for_a_fifth_of_that_patience() -> None:
    fast = replace(SYNC, suspect_after_s=2.0)
    assert kind(decide(sealed(promised(1), first_s=0.3, policy=fast), NOW)) is Wait
    assert kind(decide(sealed(promised(1), first_s=0.5, policy=fast), NOW)) is Promote


def test_the_answer_of_a_process_that_is_gone_is_not_waited_for() -> None:
    seen = sealed(promised(1), promised(2), first_s=0.0)
    assert kind(decide(seen, NOW)) is Wait
    gone = tuple(replace(each, gone_since_s=NOW) if each.ordinal == 0 else each for each in seen.members)
    assert decide(replace(seen, members=gone), NOW) == Promote(state(1).me, parse_set("1.0,2.0"))


@pytest.mark.parametrize(
    "answer",
    [
        promised(1, me=Holder(Member(1, 1), "p1")),  # another incarnation
        promised(1, store_uid="other"),
        promised(1, log_end=ACTIVE.confirm_floor - 1, confirmed=0),
        promised(1, promise=4),
    ],
)
def test_who_is_not_what_the_register_knows_is_not_promoted(answer: MemberState) -> None:
    assert kind(decide(sealed(answer), NOW)) is Blocked


def test_who_left_the_set_is_not_promoted() -> None:
    record = replace(SEALED, in_sync=parse_set("0.0,1.0"))
    assert kind(decide(sealed(promised(2, log_end=END + 99), record=record), NOW)) is Blocked
    found = decide(sealed(promised(1), promised(2, log_end=END + 99), record=record), NOW)
    assert found == Promote(state(1).me, record.in_sync)


def test_an_old_answer_to_an_older_seal_does_not_count() -> None:
    assert kind(decide(sealed(promised(1), record=replace(SEALED, epoch=6)), NOW)) is Blocked


def test_without_acknowledging_slaves_the_lease_of_the_old_master_is_waited_for() -> None:
    answers = (promised(1), promised(2))
    assert kind(decide(sealed(*answers, policy=ASYNC, unchanged_s=16.9), NOW)) is Wait
    assert kind(decide(sealed(*answers, policy=ASYNC, unchanged_s=17.0), NOW)) is Promote
    assert kind(decide(sealed(*answers, promised(0), policy=ASYNC, unchanged_s=2.0), NOW)) is Promote


def test_an_old_master_that_answered_the_seal_or_is_gone_is_not_waited_for() -> None:
    policy = replace(ASYNC, replicas=3)
    two = sealed(promised(0), promised(1), policy=policy, unchanged_s=2.0)
    assert kind(decide(two, NOW)) is Wait  # nobody remembers who led
    assert kind(decide(replace(two, former=ME), NOW)) is Promote
    gone = sealed(promised(1), promised(2), policy=policy, unchanged_s=2.0, former=ME)
    assert kind(decide(gone, NOW)) is Wait
    members = (replace(gone.members[0], gone_since_s=NOW - 1.0), *gone.members[1:])
    assert kind(decide(replace(gone, members=members), NOW)) is Promote


RESIGNED = [({"role": NONE}, Promote), ({}, Wait), ({"role": NONE, "me": Holder(ME.member, "other")}, Wait)]


@pytest.mark.parametrize(("changes", "expected"), RESIGNED)
def test_an_old_master_whose_disk_takes_no_promise_is_not_waited_for_once_it_leads_no_more(
    changes: dict[str, object], expected: type
) -> None:
    seen = sealed(promised(1), promised(2), policy=ASYNC, unchanged_s=2.0, former=ME)
    hung = Observed(0, state(0, is_writable=False, **changes))
    assert kind(decide(replace(seen, members=(hung, *seen.members[1:])), NOW)) is expected


def test_when_all_of_the_set_lost_their_tails_everybody_is_heard_or_a_person_decides() -> None:
    answers = [promised(each, me=Holder(Member(each, 1), "q")) for each in range(3)]
    found = decide(sealed(*answers), NOW)
    assert isinstance(found, Recover) and len(found.states) == 3
    manual = replace(SYNC, after_total_power_loss=False)
    assert kind(decide(sealed(*answers, policy=manual), NOW)) is Blocked
    assert kind(decide(sealed(*answers[:2]), NOW)) is Blocked


# No register, or a wrong one


def empty(ordinal: int) -> Observed:
    return Observed(ordinal, state(ordinal, role=NONE, epoch=0, promise=0, last_epoch=0, log_end=0, confirmed=0))


def test_a_new_group_begins_when_every_disk_is_known_to_be_empty() -> None:
    disks = {each: empty(each) for each in range(3)}
    assert decide(snapshot(disks, None), NOW) == Bootstrap(((0, "8f1c"), (1, "77aa"), (2, "c09d")))
    assert kind(decide(snapshot({0: empty(0), 1: empty(1)}, None), NOW)) is Blocked


def test_disks_that_were_kept_are_recovered_and_never_bootstrapped() -> None:
    members = {0: empty(0)} | well(1, 2)
    assert kind(decide(snapshot(members, None), NOW)) is Recover
    assert kind(decide(snapshot({0: empty(0)} | well(1), None), NOW)) is Blocked


@pytest.mark.parametrize("changes", [{"epoch": 5}, {"last_epoch": 5}, {"promise": 6}])
def test_a_register_older_than_what_members_did_is_made_again(changes: dict[str, object]) -> None:
    ahead = {1: Observed(1, state(1, **changes))}
    assert kind(decide(snapshot(well(0, 2) | ahead), NOW)) is Recover
    assert kind(decide(snapshot(well(2) | ahead), NOW)) is Blocked


@pytest.mark.parametrize("phase", [Phase.RECOVERING, Phase.BOOTSTRAPPING])
def test_without_a_known_set_everybody_has_to_promise_before_logs_are_compared(phase: Phase) -> None:
    record = replace(SEALED, phase=phase, in_sync=frozenset())
    answers = [promised(0, log_end=END - 5), promised(1), promised(2, last_epoch=3, log_end=END + 50)]
    assert kind(decide(sealed(*answers[:2], record=record), NOW)) is Blocked
    assert decide(sealed(*answers, record=record), NOW) == Promote(state(1).me, parse_set("1.0"))
    stranger = [replace(answers[0], store_uid="other"), *answers[1:]]
    assert kind(decide(sealed(*stranger, record=record), NOW)) is Blocked


def test_without_a_known_set_no_matter_who_knows_most_of_what_is_confirmed_leads_among_equal_logs() -> None:
    record = replace(SEALED, phase=Phase.RECOVERING, in_sync=frozenset())
    answers = [promised(0, confirmed=END - 900), promised(1), promised(2)]
    assert decide(sealed(*answers, record=record), NOW) == Promote(state(1).me, parse_set("0.0,1.0,2.0"))
    furthest = [promised(0, confirmed=END - 900, log_end=END + 1), promised(1), promised(2)]
    assert decide(sealed(*furthest, record=record), NOW) == Promote(state(0).me, parse_set("0.0"))


# Standing faults


def test_a_member_that_was_promoted_in_vain_gives_way_and_is_waited_for_longer_the_next_time() -> None:
    ahead = replace(promised(1), log_end=END + 100)
    assert decide(sealed(ahead, promised(2), tried={1: 1}), NOW) == Promote(state(2).me, SEALED.in_sync)
    assert decide(sealed(ahead, promised(2), tried={1: 1, 2: 1}), NOW) == Promote(state(1).me, parse_set("1.0,2.0"))
    late = sealed(ahead, tried={1: 1})
    late = replace(late, members=(*late.members[:2], Observed(2, state(2))))
    assert kind(decide(late, NOW)) is Wait, "the other one answers, and is about to promise"
    assert decide(replace(late, first_answer_s=NOW - 10.0), NOW) == Promote(state(1).me, SEALED.in_sync)
    members = well(1, 2) | {0: silent(0, 9.9)}
    assert kind(decide(snapshot(members, tried={0: 1}), NOW)) is Seal
    assert decide(snapshot(members, tried={0: 2}), NOW) == Wait(f"the master {ME} is not well, for less than 10 s")
    assert kind(decide(snapshot(well(1, 2) | {0: silent(0, 10.0)}, tried={0: 2}), NOW)) is Seal


def test_a_member_that_was_tried_in_vain_is_left_out_of_a_set_that_is_large_enough_without_it() -> None:
    all_equal = promised(0), promised(1), promised(2)
    assert decide(sealed(*all_equal, tried={0: 1}), NOW) == Promote(state(1).me, parse_set("1.0,2.0"))
    assert decide(sealed(*all_equal[:2], tried={0: 1}), NOW) == Promote(state(1).me, SEALED.in_sync)
    assert decide(sealed(*all_equal, tried={0: 1, 1: 1, 2: 1}), NOW) == Promote(state(0).me, parse_set("0.0,1.0,2.0"))


def test_a_master_that_is_restarted_over_and_over_is_sealed_between_two_of_its_starts() -> None:
    members = well(1, 2) | {0: silent(0, 1.5)}
    assert kind(decide(snapshot(members, unchanged_s=1.5, restarts=2), NOW)) is Wait
    assert kind(decide(snapshot(members, unchanged_s=1.5, restarts=3), NOW)) is Seal
    assert kind(decide(snapshot(members, unchanged_s=1.0, restarts=3), NOW)) is Wait, "it has just claimed an epoch"
    assert kind(decide(snapshot(well(0, 1, 2), unchanged_s=1.5, restarts=3), NOW)) is Wait


def test_a_wait_tells_when_it_is_over() -> None:
    found = decide(snapshot(well(1, 2) | {0: silent(0, 4.0)}, unchanged_s=3.0), NOW)
    assert isinstance(found, Wait) and found.due_s == NOW + 2.0


def test_a_master_without_enough_slaves_is_sealed_although_it_renews() -> None:
    members = well(0, 1, 2)
    assert kind(decide(snapshot(members, unchanged_s=0.0, cut_off_since_s=NOW - 4.9), NOW)) is Wait
    assert kind(decide(snapshot(members, unchanged_s=0.0, cut_off_since_s=NOW - 5.0), NOW)) is Seal
    assert kind(decide(snapshot(members, cut_off_since_s=NOW - 9.0, tried={0: 2}), NOW)) is Wait
    by_hand = replace(SYNC, is_automatic=False)
    assert kind(decide(snapshot(members, policy=by_hand, cut_off_since_s=NOW - 5.0), NOW)) is Blocked


def test_a_master_without_room_hands_over_to_an_equal_member_with_room() -> None:
    full = Observed(0, state(0, is_disk_full=True))
    members = well(1, 2) | {0: full}
    found = decide(snapshot(members, burdened_since_s=NOW - 5.0), NOW)
    assert found == HandOver(1, f"the disk of {ME} is full")
    assert kind(decide(snapshot(members, burdened_since_s=NOW - 4.9), NOW)) is Wait
    assert kind(decide(snapshot(members, burdened_since_s=None), NOW)) is Wait
    by_hand = replace(SYNC, is_automatic=False)
    assert kind(decide(snapshot(members, policy=by_hand, burdened_since_s=NOW - 5.0), NOW)) is Wait
    slow = {0: Observed(0, state(0, is_disk_late=True))} | well(1)
    assert decide(snapshot(slow, burdened_since_s=NOW - 5.0), NOW) == HandOver(1, f"the disk of {ME} is too slow")
    nobody = {0: full, 1: Observed(1, state(1, is_disk_full=True)), 2: Observed(2, state(2, log_end=END - 1))}
    assert kind(decide(snapshot(nobody, burdened_since_s=NOW - 5.0), NOW)) is Wait


def test_one_that_was_silent_for_the_time_of_suspicion_is_not_waited_for() -> None:
    seen = sealed(promised(1), promised(2), first_s=0.0)
    members = tuple(silent(0, 5.0) if each.ordinal == 0 else each for each in seen.members)
    assert decide(replace(seen, members=members), NOW) == Promote(state(1).me, parse_set("1.0,2.0"))


def test_of_equals_one_with_room_on_its_disk_leads_but_never_a_shorter_log() -> None:
    full = promised(1, is_disk_full=True)
    assert decide(sealed(full, promised(2)), NOW) == Promote(state(2).me, SEALED.in_sync)
    assert decide(sealed(full, promised(0), promised(2)), NOW) == Promote(state(0).me, parse_set("0.0,2.0"))
    ahead = replace(full, log_end=END + 100)
    assert decide(sealed(ahead, promised(2)), NOW) == Promote(state(1).me, parse_set("1.0,2.0"))
