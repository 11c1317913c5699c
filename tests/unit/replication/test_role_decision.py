"""What the register says to one member."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.replication.members import Member, incarnation_of, parse_set
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from gantry.replication.role_decision import Claim, Follow, Lead, OwnState, Stand, decide_role

ME = Holder(Member(0, 0), "p1")
RECORD = RegisterRecord(
    "c1",
    7,
    Phase.ACTIVE,
    ME,
    parse_set("0.0,1.0"),
    stores=((0, MemberDisk("disk0", 0)), (1, MemberDisk("disk1", 0))),
    confirm_floor=100,
)
KNOWN = OwnState(ME, "c1", "disk0", 120, 6, 7)


def test_who_is_named_in_an_epoch_that_is_new_to_its_disk_leads() -> None:
    assert decide_role(RECORD, KNOWN) == Lead(7)


def test_an_epoch_in_which_this_disk_has_led_is_never_gone_on_with() -> None:
    found = decide_role(RECORD, KNOWN._replace(last_epoch=7))
    assert isinstance(found, Claim) and found.record.epoch == 8 and found.record.holder == ME


def test_the_next_process_of_the_master_claims_an_epoch_of_its_own_and_leaves_the_set() -> None:
    found = decide_role(RECORD, KNOWN._replace(me=ME._replace(process="p2")))
    assert isinstance(found, Claim) and str(found.record.holder) == "0.0/p2"
    assert found.record.epoch == 8 and found.record.in_sync == RECORD.in_sync


def test_a_log_that_was_rolled_back_claims_nothing() -> None:
    found = decide_role(RECORD, KNOWN._replace(me=ME._replace(process="p2"), log_end=99))
    assert isinstance(found, Stand) and "confirmed" in found.reason


def test_another_incarnation_of_the_master_claims_nothing() -> None:
    found = decide_role(RECORD, KNOWN._replace(me=Holder(Member(0, 1), "p2")))
    assert isinstance(found, Stand)


def test_who_is_not_named_follows() -> None:
    known = KNOWN._replace(me=Holder(Member(1, 0), "q1"), store_uid="disk1")
    assert decide_role(RECORD, known) == Follow(0, 7)


@pytest.mark.parametrize(
    "known",
    [
        KNOWN._replace(store_uid="another"),
        KNOWN._replace(me=Holder(Member(0, incarnation_of(1, 0)), "p1")),
        KNOWN._replace(me=Holder(Member(2, 0), "r1"), store_uid="disk2"),
    ],
)
def test_a_disk_that_the_register_does_not_know_neither_leads_nor_follows(known: OwnState) -> None:
    found = decide_role(RECORD, known)
    assert isinstance(found, Stand) and "does not know the disk" in found.reason


def test_nobody_leads_a_sealed_group() -> None:
    sealed = replace(RECORD, phase=Phase.SEALED, holder=None, epoch=8)
    assert isinstance(decide_role(sealed, KNOWN), Stand)


def test_a_higher_promise_keeps_even_the_holder_from_leading() -> None:
    found = decide_role(RECORD, KNOWN._replace(promise=8))
    assert isinstance(found, Stand) and "promised" in found.reason


def test_a_folder_of_another_cluster_stays_out() -> None:
    found = decide_role(RECORD, KNOWN._replace(cluster_uid="c2"))
    assert isinstance(found, Stand) and "another folder" in found.reason


def test_without_a_register_everybody_stands_by() -> None:
    assert isinstance(decide_role(None, KNOWN), Stand)
