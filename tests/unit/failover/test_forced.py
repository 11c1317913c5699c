"""A person chooses who leads next: of one epoch, within what was allowed, and never behind anybody's back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.failover.decide import Blocked, Force, Forced, Observed, Policy, Promote, Seal, Snapshot, Wait, decide
from gantry.replication import operations
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member, parse_set
from gantry.replication.operations import Denied
from gantry.replication.record import Holder, Phase, RegisterRecord
from gantry.replication.terms import LeaderTerms
from testkit.registers import ACTIVE, ME

NOW = 1000.0
UIDS = ("8f1c", "77aa", "c09d")
END = 2_000_000
SEALED = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)
BEHIND = replace(SEALED, in_sync=parse_set("0.0,1.0"), stores=SEALED.stores)


def policy(ordinal: int, epoch: int = 4, **more: bool) -> Policy:
    return Policy(3, 2, True, 5.0, forced=Forced(ordinal, epoch, **more))


def state(ordinal: int, **changes: object) -> MemberState:
    me = ME if ordinal == 0 else Holder(Member(ordinal, 0), f"p{ordinal}")
    role = MemberRole.MASTER if ordinal == 0 else MemberRole.SLAVE
    found = MemberState("1f0e7d", "b0", UIDS[ordinal], me, role, 4, 4, 4, 0, END, END, ordinal == 0)
    return replace(found, **changes)  # type: ignore[arg-type]


def promised(ordinal: int, **changes: object) -> MemberState:
    return state(ordinal, **({"role": MemberRole.NONE, "promise": 5, "is_writable": False} | changes))


def seen(wanted: Policy, record: RegisterRecord, *answers: MemberState, gone: frozenset[int] = frozenset()) -> Snapshot:
    found = {each.member.ordinal: each for each in answers}
    is_sealed = record.phase is Phase.SEALED
    members = tuple(
        Observed(
            each,
            found.get(each),
            found.get(each) if is_sealed else None,
            None if each in found else NOW - 10,
            NOW - 10 if each in gone else None,
        )
        for each in range(3)
    )
    return Snapshot(record, NOW - 1, members, wanted, first_answer_s=NOW - 2)


def everybody() -> list[MemberState]:
    return [state(0), state(1), state(2)]


def test_a_choice_seals_the_epoch_that_it_names_and_no_other() -> None:
    assert isinstance(decide(seen(policy(1), ACTIVE, *everybody()), NOW), Seal)
    for epoch in (3, 5):
        found = decide(seen(policy(1, epoch), ACTIVE, *everybody()), NOW)
        assert found == Wait("the master is well")


def test_who_leads_already_is_not_sealed_again() -> None:
    assert decide(seen(policy(0), ACTIVE, *everybody()), NOW) == Wait("the master is well")


def test_the_chosen_one_of_the_set_leads_although_another_one_has_more() -> None:
    short = promised(2, log_end=END - 10)
    found = decide(seen(policy(2), SEALED, promised(0), promised(1), short), NOW)
    assert found == Promote(short.me, frozenset({state(0).member, state(1).member, short.member}))


def test_the_chosen_one_is_waited_for_while_it_is_there_and_its_promise_may_come() -> None:
    late = replace(seen(policy(2), SEALED, promised(0), promised(1)), first_answer_s=NOW - 5)
    waiting = replace(late.members[2], state=state(2))
    found = decide(replace(late, members=(*late.members[:2], waiting)), NOW)
    assert isinstance(found, Wait) and "who was chosen" in found.reason
    for too_late in (late, replace(late, first_answer_s=NOW - 11, members=(*late.members[:2], waiting))):
        assert isinstance(decide(too_late, NOW), Promote), "the others do not wait for ever"


def test_a_choice_that_cannot_be_kept_changes_nothing_and_is_said() -> None:
    found = decide(seen(policy(2), ACTIVE, state(0), state(1)), NOW)
    assert isinstance(found, Wait) and found.reason.startswith("the master is well; ")
    assert "member 2 does not answer" in found.reason


def test_who_is_not_in_sync_needs_leave_to_lose_something() -> None:
    record = replace(BEHIND, epoch=4, phase=Phase.ACTIVE, holder=ME)
    refused = decide(seen(policy(2), record, *everybody()), NOW)
    assert isinstance(refused, Wait) and "unclean failover is refused" in refused.reason
    assert isinstance(decide(seen(policy(2, unclean=True), record, *everybody()), NOW), Seal)


def test_who_is_not_in_sync_waits_until_nobody_can_be_acknowledging() -> None:
    wanted = policy(2, epoch=5, unclean=True)
    waiting = decide(seen(wanted, BEHIND, promised(2)), NOW)
    assert isinstance(waiting, Blocked) and "members [0, 1] have not promised" in waiting.reason
    assert decide(seen(wanted, BEHIND, promised(2), gone=frozenset({0, 1})), NOW) == Force(promised(2).me, END)
    split = policy(2, epoch=5, unclean=True, accept_split=True)
    assert decide(seen(split, BEHIND, promised(2)), NOW) == Force(promised(2).me, END)


def test_a_forced_master_leads_alone_and_may_restart_on_what_it_has() -> None:
    short = promised(2, log_end=10)
    record = replace(BEHIND, confirm_floor=END)
    forced = operations.force(record, short.me, short.log_end)
    assert isinstance(forced, RegisterRecord)
    assert (forced.in_sync, forced.holder, forced.confirm_floor) == (frozenset({short.member}), short.me, 10)
    again = operations.take_next_epoch(forced, replace_process(short.me), UIDS[2], 10)
    assert isinstance(again, RegisterRecord)
    assert isinstance(operations.force(replace(record, phase=Phase.RECOVERING), short.me, 10), Denied)


def replace_process(holder: Holder) -> Holder:
    return holder._replace(process="again")


@pytest.mark.parametrize("is_automatic", [True, False])
def test_without_leave_nobody_is_sealed_by_suspicion(is_automatic: bool) -> None:
    wanted = replace(policy(0, 1), forced=None, is_automatic=is_automatic)
    snapshot = replace(seen(wanted, ACTIVE, state(1), state(2)), unchanged_since_s=NOW - 10)
    assert isinstance(decide(snapshot, NOW), Seal if is_automatic else Blocked)


def test_a_shorter_lease_is_not_believed_before_the_longer_one_is_over() -> None:
    wanted = replace(policy(0, 1), forced=None, is_sync_master=False, min_in_sync=1)
    led = LeaderTerms(4, False, 1, 6)
    record = replace(SEALED, lease_duration_s=6, leader_terms=led)
    answers = [promised(1), promised(2)]
    late = replace(seen(wanted, record, *answers), unchanged_since_s=NOW - 9, former=ME)
    assert isinstance(decide(late, NOW), Promote)
    assert isinstance(decide(replace(late, lease_s=15), NOW), Wait)
    renewed_longer = replace(record, leader_terms=replace(led, lease_s=15))
    assert isinstance(decide(replace(late, record=renewed_longer), NOW), Wait), "also one who saw no longer lease"


def test_what_slaves_answered_before_their_promise_is_waited_for() -> None:
    """An ASYNC_MASTER without its register acknowledges while all of the set answer its beats."""
    wanted = replace(policy(0, 1), forced=None, is_sync_master=False, min_in_sync=1)
    late = replace(seen(wanted, SEALED, promised(1), promised(2)), unchanged_since_s=NOW - 60, former=ME)

    def answered(since_s: float) -> Snapshot:
        return replace(late, members=tuple(replace(each, sealed_s=NOW - since_s) for each in late.members))

    assert isinstance(decide(answered(4.9), NOW), Wait)
    assert isinstance(decide(answered(5.0), NOW), Promote)
