"""What a member says about itself, as JSON."""

from __future__ import annotations

import json

import pytest

from gantry.replication.hastate import MemberRole, MemberState, read_state
from gantry.replication.members import Member
from gantry.replication.record import Holder

STATE = MemberState(
    "1f0e7d", "b0", "8f1c", Holder(Member(1, 4096), "2c41"), MemberRole.MASTER, 4, 5, 4, 100, 900, 800, True
)


def test_a_state_is_read_as_it_was_written() -> None:
    assert read_state(json.loads(json.dumps(STATE.to_document()))) == STATE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("member", ""), ("member", "1.1"), ("member", "64.0/p"), ("role", "leader"), ("epoch", -1),
        ("promise", 1 << 31), ("maxOffset", 99), ("minOffset", -1),
        ("confirmOffset", 901), ("maxOffset", "many"), ("writable", []),
    ],
)  # fmt: skip
def test_what_cannot_be_a_state_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_state({**STATE.to_document(), name: value})
