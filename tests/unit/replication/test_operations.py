"""What may be done to a register, and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.replication import operations
from gantry.replication.members import NUMBER_MAX, Member, parse_set
from gantry.replication.operations import Denied
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from testkit.registers import ACTIVE, ME

ONE = Holder(Member(1, 0), "aa01")
SEALED = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)
SET = parse_set("0.0,1.0,2.0")


def done(found: RegisterRecord | Denied) -> RegisterRecord:
    assert isinstance(found, RegisterRecord), found
    return found


def denied(found: RegisterRecord | Denied) -> str:
    assert isinstance(found, Denied), found
    return found.reason


STRANGERS = [
    (replace(ACTIVE, epoch=5), ME, 4),  # another epoch
    (ACTIVE, Holder(ME.member, "other"), 4),  # the same member, started again
    (ACTIVE, ONE, 4),
    (SEALED, ME, 4),
    (SEALED, ME, 5),
]


@pytest.mark.parametrize(("record", "me", "epoch"), STRANGERS)
def test_only_the_master_of_the_epoch_writes_as_master(record: RegisterRecord, me: Holder, epoch: int) -> None:
    assert "leads in epoch" in denied(operations.renew(record, me, epoch, 0, 0))
    assert "leads in epoch" in denied(operations.change_set(record, me, epoch, SET, parse_set("0.0,1.0"), 2))
    assert "leads in epoch" in denied(operations.hand_over(record, me, epoch, Holder(Member(2, 0), "x")))


def test_a_renewal_moves_the_floor_up_and_never_down() -> None:
    record = done(operations.renew(ACTIVE, ME, 4, 2_000_000, 77))
    assert (record.confirm_floor, record.renewed_ms) == (2_000_000, 77)
    assert done(operations.renew(record, ME, 4, 5, 78)).confirm_floor == 2_000_000


def test_the_set_changes_from_what_the_master_believes_it_to_be() -> None:
    record = done(operations.change_set(ACTIVE, ME, 4, SET, parse_set("0.0,1.0"), 2))
    assert (record.in_sync, record.set_version, record.epoch) == (parse_set("0.0,1.0"), 18, 4)
    assert "expected" in denied(operations.change_set(record, ME, 4, SET, parse_set("0.0,2.0"), 1))


def test_the_set_never_shrinks_below_min_in_sync_and_may_grow_below_it() -> None:
    pair = replace(ACTIVE, in_sync=parse_set("0.0,1.0"))
    assert "fewer" in denied(operations.change_set(pair, ME, 4, pair.in_sync, parse_set("0.0"), 2))
    assert done(operations.change_set(pair, ME, 4, pair.in_sync, parse_set("0.0"), 1)).in_sync == parse_set("0.0")
    alone = replace(ACTIVE, in_sync=parse_set("0.0"))
    assert done(operations.change_set(alone, ME, 4, alone.in_sync, pair.in_sync, 3)).in_sync == pair.in_sync


def test_a_set_without_its_master_or_with_an_ordinal_twice_is_refused() -> None:
    assert "could lead" in denied(operations.change_set(ACTIVE, ME, 4, SET, parse_set("1.0,2.0"), 1))
    twice = frozenset({Member(0, 0), Member(1, 0), Member(1, 1)})
    assert "could lead" in denied(operations.change_set(ACTIVE, ME, 4, SET, twice, 1))


def test_only_the_disk_that_was_admitted_joins() -> None:
    remade = parse_set("0.0,1.4096,2.0")  # disk 1 under ordinal 1
    assert "admitted" in denied(operations.change_set(ACTIVE, ME, 4, SET, remade, 2))
    record = done(operations.admit(ACTIVE, 1, "beef"))
    assert record.store(1) == MemberDisk("beef", 1)
    assert done(operations.change_set(record, ME, 4, SET, remade, 2)).in_sync == remade
    lost = parse_set("0.0,1.0,2.3")  # the same disk after three losses
    assert done(operations.change_set(ACTIVE, ME, 4, SET, lost, 2)).in_sync == lost


AGAIN = Holder(ME.member, "2c42")


def test_a_restarted_master_takes_an_epoch_of_its_own() -> None:
    record = done(operations.take_next_epoch(ACTIVE, AGAIN, "8f1c", 1_843_200))
    assert (record.epoch, record.holder, record.in_sync, record.phase) == (5, AGAIN, SET, Phase.ACTIVE)


@pytest.mark.parametrize(
    ("record", "me", "uid", "end", "reason"),
    [
        (SEALED, AGAIN, "8f1c", 1_843_200, "Sealed"),
        (ACTIVE, Holder(Member(0, 1), "2c42"), "8f1c", 1_843_200, "leads"),
        (ACTIVE, ONE, "77aa", 1_843_200, "leads"),
        (ACTIVE, AGAIN, "other", 1_843_200, "store"),
        (ACTIVE, AGAIN, "8f1c", 1_843_199, "confirmed"),
    ],
)
def test_a_restarted_master_is_the_one_that_the_register_knows(
    record: RegisterRecord, me: Holder, uid: str, end: int, reason: str
) -> None:
    assert reason in denied(operations.take_next_epoch(record, me, uid, end))


def test_a_handover_goes_to_another_member_of_the_set() -> None:
    record = done(operations.hand_over(ACTIVE, ME, 4, ONE))
    assert (record.epoch, record.holder, record.in_sync) == (5, ONE, SET)
    for target in (AGAIN, Holder(Member(1, 1), "p"), Holder(Member(3, 0), "p")):
        assert "another member" in denied(operations.hand_over(ACTIVE, ME, 4, target))


def test_a_master_that_stops_leaves_the_set_with_the_handover_if_enough_stay() -> None:
    others = SET - {ME.member}
    left = done(operations.hand_over(ACTIVE, ME, 4, ONE, keep=len(others)))
    assert (left.epoch, left.holder, left.in_sync) == (5, ONE, others) and left.set_version == ACTIVE.set_version + 1
    kept = done(operations.hand_over(ACTIVE, ME, 4, ONE, keep=len(others) + 1))
    assert (kept.holder, kept.in_sync, kept.set_version) == (ONE, SET, ACTIVE.set_version)


def test_a_seal_ends_the_epoch_and_freezes_the_set() -> None:
    record = done(operations.seal(ACTIVE))
    assert (record.epoch, record.holder, record.phase, record.in_sync) == (5, None, Phase.SEALED, SET)
    assert done(operations.seal(record)).epoch == 6


@pytest.mark.parametrize("phase", [Phase.BOOTSTRAPPING, Phase.RECOVERING])
def test_what_never_had_a_master_is_not_sealed(phase: Phase) -> None:
    assert "no master" in denied(operations.seal(replace(SEALED, phase=phase, in_sync=frozenset())))


def test_a_promotion_makes_the_chosen_and_its_equals_the_set() -> None:
    record = done(operations.promote(SEALED, ONE, parse_set("1.0,2.0")))
    assert (record.epoch, record.holder, record.phase) == (5, ONE, Phase.ACTIVE)
    assert (record.in_sync, record.set_version) == (parse_set("1.0,2.0"), 18)


@pytest.mark.parametrize(
    ("record", "equals", "reason"),
    [
        (ACTIVE, "1.0", "leads"),
        (SEALED, "2.0", "not in"),
        (replace(SEALED, in_sync=parse_set("0.0,2.0")), "1.0", "sealed set"),
        (replace(SEALED, in_sync=parse_set("0.0,1.1")), "1.0", "sealed set"),
        (replace(SEALED, stores=((1, MemberDisk("77aa", 1)),)), "1.0", "admitted"),
    ],
)
def test_nobody_is_promoted_from_outside_the_sealed_set(record: RegisterRecord, equals: str, reason: str) -> None:
    assert reason in denied(operations.promote(record, ONE, parse_set(equals)))


def test_a_new_group_admits_its_disks_and_promotes_one_of_them() -> None:
    record = operations.bootstrap("1f0e7d", 15)
    for ordinal, uid in enumerate(("a", "b", "c")):
        record = done(operations.admit(record, ordinal, uid))
    record = done(operations.promote(record, Holder(Member(0, 0), "p"), parse_set("0.0")))
    assert (record.epoch, record.phase, record.in_sync) == (1, Phase.ACTIVE, parse_set("0.0"))


def test_a_recovered_register_is_above_every_promise() -> None:
    record = done(operations.recreate("1f0e7d", [4, 9, 7], ACTIVE.stores, 15))
    assert (record.epoch, record.phase, record.in_sync) == (10, Phase.RECOVERING, frozenset())
    assert done(operations.promote(record, ONE, parse_set("1.0,2.0"))).holder == ONE


def test_a_disk_keeps_its_number_and_the_next_one_gets_another() -> None:
    assert done(operations.admit(ACTIVE, 1, "77aa")) == ACTIVE
    record = done(operations.admit(done(operations.admit(ACTIVE, 1, "b1")), 1, "b2"))
    assert record.store(1) == MemberDisk("b2", 2)


def test_a_number_is_never_given_twice_even_after_a_removal() -> None:
    gone = done(operations.remove(replace(ACTIVE, in_sync=parse_set("0.0,1.0")), 2))
    assert gone.store(2) is None
    assert done(operations.admit(gone, 2, "c09d")).store(2) == MemberDisk("c09d", 1)


def test_the_holders_disk_is_not_replaced_and_a_member_of_the_set_not_removed() -> None:
    assert "leads" in denied(operations.admit(ACTIVE, 0, "other"))
    assert "is in" in denied(operations.remove(ACTIVE, 2))


def test_the_last_epoch_is_the_last() -> None:
    last = replace(ACTIVE, epoch=NUMBER_MAX)
    assert "no epoch" in denied(operations.seal(last))
    assert "no epoch" in denied(operations.take_next_epoch(last, AGAIN, "8f1c", 1_843_200))
    assert "no epoch" in denied(operations.recreate("u", [NUMBER_MAX], (), 15))
