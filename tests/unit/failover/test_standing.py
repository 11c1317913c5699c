"""Who is healthy, cut off or able to lead, and for how long a member is waited for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from gantry.failover.standing import (
    PATIENCE_S_MAX,
    RESTARTS_MAX,
    heir_of_burdened,
    is_cut_off,
    is_linked_late,
    is_serving,
    patience_s,
)
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member
from gantry.replication.record import Holder, MemberDisk, RegisterRecord
from testkit.registers import ACTIVE, ME

UIDS = ("8f1c", "77aa", "c09d", "d3", "d4", "d5", "d6")
END = 2_000_000


def state(ordinal: int, role: MemberRole = MemberRole.NONE, **changes: object) -> MemberState:
    me = ME if ordinal == 0 else Holder(Member(ordinal, 0), f"p{ordinal}")
    found = MemberState("1f0e7d", "b0", UIDS[ordinal], me, role, 4, 4, 4, 0, END, END, role is MemberRole.MASTER)
    return replace(found, **changes)  # type: ignore[arg-type]


SHORT = state(0, MemberRole.MASTER, is_short=True)


@pytest.mark.parametrize(("tried", "expected_s"), [(0, 5.0), (1, 5.0), (2, 10.0), (4, 40.0), (99, PATIENCE_S_MAX)])
def test_patience_doubles_with_each_mastership_in_vain_up_to_a_bound(tried: int, expected_s: float) -> None:
    assert patience_s(5.0, tried) == expected_s
    assert patience_s(400.0, tried) == 400.0, "never less than the time of suspicion"
    assert patience_s(5.0, tried, RESTARTS_MAX - 1) == expected_s
    assert patience_s(5.0, tried, RESTARTS_MAX) == 1.25, "its process ends and is started again, over and over"


def test_a_master_is_cut_off_when_enough_others_follow_nobody_and_one_of_them_may_lead() -> None:
    assert is_cut_off(ACTIVE, [SHORT, state(1), state(2)], 2, 3)
    assert not is_cut_off(ACTIVE, [state(0, MemberRole.MASTER), state(1), state(2)], 2, 4), "another one may follow it"
    assert not is_cut_off(ACTIVE, [SHORT, state(1)], 2, 3), "the other one could not confirm either"
    behind = [state(ordinal, log_end=ACTIVE.confirm_floor - 1, confirmed=0) for ordinal in (1, 2)]
    assert not is_cut_off(ACTIVE, [SHORT, *behind], 2, 3), "nobody may lead"
    assert not is_cut_off(ACTIVE, [replace(SHORT, is_writable=False), state(1), state(2)], 2, 3), "suspicion sees to it"


def larger(members: int, in_sync: Collection[int]) -> RegisterRecord:
    recorded = frozenset(Member(ordinal, 0) for ordinal in in_sync)
    stores = tuple((ordinal, MemberDisk(UIDS[ordinal], 0)) for ordinal in range(members))
    return replace(ACTIVE, in_sync=recorded, stores=stores)


@pytest.mark.parametrize(("members", "least"), [(3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_member_that_still_follows_counts_with_those_who_follow_nobody(members: int, least: int) -> None:
    reached = range(1, least - 1)  # with the master one too few
    cut = range(least - 1, least)  # so many that they and those who follow are enough, if one more answers
    record = larger(members, range(least))
    follow = [state(each, MemberRole.SLAVE) for each in reached]
    alone = [state(each) for each in cut]
    assert not is_cut_off(record, [SHORT, *follow, *alone], least, members), "one too few without the master"
    back = state(least)  # outside the set, and it follows nobody
    assert is_cut_off(record, [SHORT, *follow, *alone, back], least, members)
    copied = state(least, MemberRole.SLAVE, log_end=ACTIVE.confirm_floor - 1, confirmed=0)
    assert not is_cut_off(record, [SHORT, *follow, *alone, copied], least, members), "it is being copied"


@pytest.mark.parametrize(("members", "least"), [(2, 1), (3, 2), (4, 3), (5, 3), (7, 2), (7, 4)])
def test_late_links_are_a_reason_when_enough_others_have_what_was_confirmed(members: int, least: int) -> None:
    record = larger(members, range(max(2, least)))  # the links of the others have ended: they are out of the set
    late = state(0, MemberRole.MASTER, are_links_late=True)
    others = [state(each, MemberRole.SLAVE) if each < least else state(each) for each in range(1, members)]
    assert is_linked_late(record, [late, *others[:least]], least)
    assert not is_linked_late(record, [state(0, MemberRole.MASTER), *others], least), "nothing is late"
    assert not is_linked_late(record, [late, *others[: least - 1]], least), "one too few without the master"
    copied = replace(others[least - 1], log_end=record.confirm_floor - 1)
    assert not is_linked_late(record, [late, *others[: least - 1], copied], least), "the next one would copy it first"
    other = replace(others[least - 1], store_uid="another disk")
    assert not is_linked_late(record, [late, *others[: least - 1], other], least)
    assert not is_linked_late(larger(members, [0]), [late, *others], least), "nobody may lead"


def test_a_master_with_too_few_slaves_is_left_alone_while_everybody_follows_it() -> None:
    record = larger(5, (0, 1, 2))
    follow = [state(each, MemberRole.SLAVE) for each in (2, 3, 4)]
    assert not is_cut_off(record, [SHORT, *follow], 3, 5), "another master would have to copy 3 and 4 as well"


def test_a_master_that_nobody_follows_is_cut_off_whatever_it_hears_itself() -> None:
    deaf = [state(0, MemberRole.MASTER), state(1), state(2)]
    assert is_cut_off(ACTIVE, deaf, 2, 3), "its slaves do not hear it, and it hears them"
    assert not is_cut_off(ACTIVE, deaf, 1, 3), "it needs nobody"
    assert not is_cut_off(ACTIVE, deaf, 2, 0), "it acknowledges alone"


def test_a_master_without_room_hands_over_to_anyone_who_follows_is_equal_and_has_room() -> None:
    full = state(0, MemberRole.MASTER, is_disk_full=True)
    assert heir_of_burdened(ACTIVE, [full, state(1, MemberRole.SLAVE), state(2, MemberRole.SLAVE)]) == 1
    unfit = [
        {"role": MemberRole.NONE},
        {"is_disk_full": True},
        {"log_end": END - 1},
        {"epoch": 3},
        {"store_uid": "other"},
    ]
    for changes in unfit:
        one = replace(state(1, MemberRole.SLAVE), **changes)  # type: ignore[arg-type]
        assert heir_of_burdened(ACTIVE, [full, one, state(2, MemberRole.SLAVE)]) == 2, changes
    assert heir_of_burdened(ACTIVE, [state(0, MemberRole.MASTER), state(1, MemberRole.SLAVE)]) is None, "it has room"


def test_a_master_serves_when_enough_members_follow_it_in_its_epoch() -> None:
    master = state(0, MemberRole.MASTER)
    assert is_serving(ACTIVE, [master, state(1, MemberRole.SLAVE)], 2)
    assert not is_serving(ACTIVE, [master, state(1)], 2)
    assert not is_serving(ACTIVE, [master, state(1, MemberRole.SLAVE, epoch=3)], 2), "it follows somebody else"
    assert not is_serving(ACTIVE, [SHORT, state(1, MemberRole.SLAVE)], 2)
    assert is_serving(ACTIVE, [master], 1)
