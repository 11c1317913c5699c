"""The in-sync set, play by play; tests/properties/test_insync_model.py lets chance play against it."""

from __future__ import annotations

import pytest

from gantry.replication.insync import InSync, InSyncChange
from gantry.replication.members import Member, parse_set

ME = Member(0, 0)
ONE = Member(1, 0)
TWO = Member(2, 0)


def mastership(recorded: str = "0.0,1.0,2.0", start: int = 100, confirmed: int = 100, min_in_sync: int = 2) -> InSync:
    return InSync(ME, parse_set(recorded), start, confirmed, min_in_sync)


def acknowledge(group: InSync, **ends: int) -> int:
    for name, end in ends.items():
        group.acknowledge({"me": ME, "one": ONE, "two": TWO}[name], end)
    return group.confirmed


def must(change: InSyncChange | None) -> InSyncChange:
    assert change is not None
    return change


def test_confirmed_is_what_every_member_has() -> None:
    group = mastership()
    assert acknowledge(group, me=300, one=200) == 100
    assert acknowledge(group, two=150) == 150
    assert acknowledge(group, two=400) == 200
    assert acknowledge(group, one=400) == 300


def test_our_own_disk_counts_like_the_others() -> None:
    group = mastership()
    assert acknowledge(group, one=400, two=400) == 100
    assert acknowledge(group, me=250) == 250


def test_acknowledgements_that_come_late_take_nothing_back() -> None:
    group = mastership()
    acknowledge(group, me=300, one=300, two=300)
    assert acknowledge(group, one=150) == 300
    assert group.match(ONE) == 300


def test_a_leaving_member_counts_until_the_register_agrees() -> None:
    group = mastership()
    change = must(group.shrink(TWO))
    assert change.target == parse_set("0.0,1.0")
    assert acknowledge(group, me=300, one=300) == 100
    assert group.settle(change.target) == 300


def test_a_joining_member_counts_before_the_register_is_asked() -> None:
    group = mastership("0.0,1.0")
    acknowledge(group, me=300, one=200, two=200)
    assert group.confirmed == 200
    change = must(group.admit(TWO))
    assert group.required == change.target == parse_set("0.0,1.0,2.0")
    assert acknowledge(group, one=300) == 200
    assert acknowledge(group, two=300) == 300


def test_a_change_that_was_not_made_is_settled_with_the_old_set() -> None:
    group = mastership("0.0,1.0")
    acknowledge(group, me=300, one=200, two=200)
    base = must(group.admit(TWO)).base
    acknowledge(group, one=300)
    assert group.settle(base) == 300


def test_one_change_at_a_time() -> None:
    group = mastership("0.0,1.0", min_in_sync=1)
    acknowledge(group, me=100, one=100, two=100)
    change = group.admit(TWO)
    assert group.shrink(ONE) is None and group.admit(TWO) is None
    assert group.change is change


def test_the_set_never_shrinks_below_min_in_sync() -> None:
    group = mastership("0.0,1.0")
    assert group.shrink(ONE) is None
    assert must(mastership("0.0,1.0", min_in_sync=1).shrink(ONE)).target == {ME}


def test_the_master_never_leaves_and_a_stranger_cannot() -> None:
    group = mastership(min_in_sync=1)
    assert group.shrink(ME) is None and group.shrink(Member(1, 1)) is None


def test_with_too_few_members_confirmed_stands_still() -> None:
    group = mastership("0.0")
    assert not group.has_enough
    assert acknowledge(group, me=300, one=300) == 100


def test_a_member_that_joins_a_short_set_makes_it_whole_only_when_the_register_agrees() -> None:
    group = mastership("0.0")
    acknowledge(group, me=300, one=200)
    change = must(group.admit(ONE))
    assert not group.has_enough and group.confirmed == 100
    assert group.settle(change.target) == 200


@pytest.mark.parametrize(("end", "joins"), [(99, False), (100, True)])
def test_a_member_joins_past_the_end_of_the_log_at_the_epochs_begin(end: int, joins: bool) -> None:
    # A master that restarted knows nothing of what it confirmed before: its confirmed begins at 0.
    group = mastership("0.0", confirmed=0, min_in_sync=1)
    acknowledge(group, one=end)
    assert (group.admit(ONE) is not None) is joins


@pytest.mark.parametrize(("end", "joins"), [(299, False), (300, True)])
def test_a_member_joins_past_what_is_confirmed(end: int, joins: bool) -> None:
    group = mastership("0.0", min_in_sync=1)
    acknowledge(group, me=300, one=end)
    assert (group.admit(ONE) is not None) is joins


def test_an_acknowledgement_counts_for_the_incarnation_that_gave_it() -> None:
    group = mastership("0.0,1.0")
    acknowledge(group, me=300)
    assert group.acknowledge(Member(1, 1), 300) == 100
    assert group.acknowledge(ONE, 200) == 200


def test_a_member_that_lost_its_disk_takes_its_own_place_in_one_step() -> None:
    group = mastership("0.0,1.0")
    acknowledge(group, me=300, one=200)
    remade = Member(1, 1)
    group.acknowledge(remade, 199)
    assert group.admit(remade) is None
    group.acknowledge(remade, 300)
    change = must(group.admit(remade))
    assert change.target == parse_set("0.0,1.1")
    assert group.required == {ME, ONE, remade} and group.confirmed == 200
    assert group.settle(change.target) == 300


def test_an_incarnation_that_is_gone_never_comes_back_into_the_set() -> None:
    group = InSync(ME, parse_set("0.0,1.3"), 100, 100, 1)
    group.acknowledge(Member(1, 2), 500)
    assert group.admit(Member(1, 2)) is None


def test_another_incarnation_of_the_master_is_not_admitted() -> None:
    group = mastership("0.0", min_in_sync=1)
    group.acknowledge(Member(0, 1), 500)
    assert group.admit(Member(0, 1)) is None


def test_old_incarnations_are_forgotten() -> None:
    group = mastership("0.0,1.0")
    acknowledge(group, one=100)
    for incarnation in range(1, 1000):
        group.acknowledge(Member(1, incarnation), 100)
    assert group.match(ONE) == 100 and group.match(Member(1, 999)) == 100
    assert group.match(Member(1, 500)) == 0


def test_a_mastership_begins_with_what_was_confirmed_before() -> None:
    assert mastership(start=500, confirmed=300).confirmed == 300
