"""The terms of a member, as its state and the register carry them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gantry.replication.record import Phase, from_fields, to_fields
from gantry.replication.terms import LeaderTerms, Terms, parse_leader_terms, read_terms
from testkit.registers import ACTIVE

TERMS = Terms(True, 2, 2.5, 1 << 30, 3)


def test_terms_are_read_as_they_were_said() -> None:
    assert read_terms(json.loads(json.dumps({"terms": TERMS.to_document()}))) == TERMS
    assert read_terms({}) is None, "a member of the previous version"


@pytest.mark.parametrize("change", [{"minInSync": 0}, {"members": -1}, {"renewEveryMs": "soon"}])
def test_terms_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_terms({"terms": TERMS.to_document() | change})


def test_a_role_that_is_not_known_counts_as_one_that_acknowledges_alone() -> None:
    found = read_terms({"terms": TERMS.to_document() | {"role": "QUORUM_MASTER"}})
    assert found is not None and not found.is_sync


@pytest.mark.parametrize("text", ["", "7", "7/sync/2", "7/sync/2/15/more", "7/quorum/2/15", "x/sync/2/15"])
def test_what_is_not_understood_is_unknown_and_no_damage(text: str) -> None:
    assert parse_leader_terms(text) is None
    assert from_fields({**to_fields(ACTIVE), "leader-terms": text}).last_led is None


def test_terms_count_for_the_epoch_that_they_were_said_in_and_for_its_seal() -> None:
    assert ACTIVE.last_led == LeaderTerms(4, True, 2, 15)
    sealed = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)
    assert sealed.last_led == LeaderTerms(4, True, 2, 15)
    assert replace(sealed, epoch=6).last_led is None and replace(ACTIVE, epoch=5).last_led is None


@pytest.mark.parametrize(("is_sync", "least", "needs"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_only_a_sync_master_of_two_needs_its_slaves(is_sync: bool, least: int, needs: bool) -> None:
    assert LeaderTerms(1, is_sync, least, 15).needs_slaves is needs
