"""The set of the next epoch names everybody who may have what was acknowledged, until enough others are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.failover.standing import is_electable, set_of_next
from gantry.replication import operations
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member, parse_set
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from testkit.registers import ACTIVE

END = 2_000_000
NAMES = [
    ((1,), 2, 3, "0.0,1.0,2.0"),
    ((1, 2), 2, 3, "1.0,2.0"),
    ((1,), 1, 3, "1.0"),
    ((0,), 1, 2, "0.0"),
    ((1, 2), 3, 4, "0.0,1.0,2.0,3.0"),
    ((1, 2), 3, 5, "0.0,1.0,2.0,3.0,4.0"),
    ((1, 2, 4), 3, 5, "1.0,2.0,4.0"),
    ((0, 6), 4, 7, "0.0,1.0,2.0,3.0,4.0,5.0,6.0"),
]


def sealed(members: int, **changes: object) -> RegisterRecord:
    """A sealed group of so many members, all in sync."""
    everybody = frozenset(Member(ordinal, 0) for ordinal in range(members))
    stores = tuple((ordinal, MemberDisk(f"disk{ordinal}", 0)) for ordinal in range(members))
    record = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None, in_sync=everybody, stores=stores)
    return replace(record, **changes)  # type: ignore[arg-type]


def state(ordinal: int, **changes: object) -> MemberState:
    me = Holder(Member(ordinal, 0), f"p{ordinal}")
    found = MemberState("1f0e7d", "b0", f"disk{ordinal}", me, MemberRole.NONE, 4, 5, 4, 0, END, END, False)
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("heard", "least", "members", "expected"), NAMES)
def test_a_promotion_drops_nobody_who_was_not_heard_unless_min_in_sync_members_remain(
    heard: tuple[int, ...], least: int, members: int, expected: str
) -> None:
    states = [state(each) for each in heard]
    assert set_of_next(sealed(members), states, states, least) == parse_set(expected)


LOST = [
    {"me": Holder(Member(2, 1), "p2")},  # its newest records
    {"me": Holder(Member(2, 4096), "p2"), "store_uid": "new"},
    {"log_end": ACTIVE.confirm_floor - 1, "confirmed": 0},
]


@pytest.mark.parametrize("changes", LOST)
def test_a_member_that_is_known_to_have_lost_what_was_acknowledged_does_not_stay(changes: dict[str, object]) -> None:
    heard = [state(1), state(2, **changes)]
    assert set_of_next(sealed(3), heard[:1], heard, 2) == parse_set("0.0,1.0")


def test_a_member_whose_disk_was_replaced_since_does_not_stay_and_is_no_reason_to_deny_the_promotion() -> None:
    record = sealed(3)
    replaced = replace(record, stores=(*record.stores[:2], (2, MemberDisk("new", 1))))
    found = set_of_next(replaced, [state(1)], [state(1)], 2)
    assert found == parse_set("0.0,1.0")
    assert isinstance(operations.promote(replaced, state(1).me, found), RegisterRecord)


def test_who_has_every_acknowledged_message_may_lead_after_two_faults_with_a_heal_between() -> None:
    in_sync = set_of_next(sealed(3), [state(1)], [state(1)], 2)  # 0 and 2 are behind a cut
    again = sealed(3, epoch=6, in_sync=in_sync)  # the cut has healed, and 1 is lost
    assert is_electable(state(0), again) and is_electable(state(2), again)
