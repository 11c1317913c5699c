"""What is asked at `/ha/v1`: read once, on both sides, and refused with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.haapi import (
    ORDERS,
    SEAL,
    STATE,
    Asked,
    MemberId,
    ask_state,
    order,
    read,
    why_not_sealed,
)
from gantry.replication.haproof import Said
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import NUMBER_MAX, Member
from gantry.replication.record import Holder

ME = MemberId("1f0e", "b0", 1)
HERE = MemberState("1f0e", "b0", "s1", Holder(Member(1, 0), "p1"), MemberRole.SLAVE, 4, 4, 4, 0, 90, 80, False)


def status(said: Said, state: MemberState = HERE) -> int:
    found = read(said, state)
    return 200 if isinstance(found, Asked) else found.status


def test_what_is_asked_arrives() -> None:
    assert read(ask_state(ME), HERE) == Asked(STATE)
    assert read(order(SEAL, ME, 5), HERE) == Asked(SEAL, 5)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_travels(uid: str, group: str) -> None:
    state = replace(HERE, cluster_uid=uid, group=group)
    try:
        target = MemberId(uid, group, 1)
        said = ask_state(target)
    except UnicodeEncodeError:
        return  # half a surrogate pair is no name
    assert isinstance(read(said, state), Asked) and isinstance(read(order(SEAL, target, 5), state), Asked)


@pytest.mark.parametrize("target", [ME._replace(ordinal=2), ME._replace(group="b1"), ME._replace(cluster_uid="77")])
def test_what_is_meant_for_somebody_else_is_worth_nothing_here(target: MemberId) -> None:
    assert status(ask_state(target)) == status(order(SEAL, target, 5)) == 421


def test_who_knows_no_cluster_is_of_any() -> None:
    assert status(ask_state(ME._replace(cluster_uid=""))) == 200
    assert status(ask_state(ME), replace(HERE, cluster_uid="")) == 200


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (Said("GET", "/metrics"), 404),
        (Said("POST", ask_state(ME).path), 405),
        (Said("GET", SEAL, order(SEAL, ME, 5).body), 405),
        (Said("POST", SEAL, b""), 400),
        (Said("POST", SEAL, b"[]"), 400),
        (Said("POST", SEAL, b"[" * 60_000), 400),
        (Said("POST", SEAL, b"\xff"), 400),
        (order(SEAL, ME, 0), 400),
        (order(SEAL, ME, NUMBER_MAX + 1), 400),
        (Said("GET", STATE), 421),
        (Said("GET", STATE + "?" + "a=b&" * 50), 400),
        (Said("GET", ask_state(ME).path.replace("member=1", "member=one")), 400),
    ],
)
def test_what_cannot_be_meant_is_refused(said: Said, expected: int) -> None:
    assert status(said) == expected


@pytest.mark.parametrize("path", sorted(ORDERS))
def test_an_order_is_read_with_what_it_brings(path: str) -> None:
    found = read(order(path, ME, 5, target=2), HERE)
    assert isinstance(found, Asked) and found.call == path and found.body["target"] == 2


@pytest.mark.parametrize(
    ("role", "epoch", "promise", "seal", "expected"),
    [
        (MemberRole.SLAVE, 4, 4, 5, None),
        (MemberRole.NONE, 4, 5, 5, None),  # the same once more
        (MemberRole.NONE, 4, 5, 4, 409),
        (MemberRole.SLAVE, 4, 4, 4, 409),  # late: the epoch has a master by now
        (MemberRole.MASTER, 4, 4, 4, 409),
        (MemberRole.NONE, 4, 4, 4, None),
    ],
)
def test_a_seal_is_refused_below_the_promise_and_in_an_epoch_that_has_begun(
    role: MemberRole, epoch: int, promise: int, seal: int, expected: int | None
) -> None:
    found = why_not_sealed(replace(HERE, role=role, epoch=epoch, promise=promise), seal)
    assert (None if found is None else found.status) == expected
    assert found is None or found.document["promise"] == promise
