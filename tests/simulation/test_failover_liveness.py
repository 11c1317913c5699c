"""A group of which enough members can serve gets a master that can acknowledge, whichever links stay cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.failover_liveness import Standing, look
from simulation.failover_model import Rules

RULES = Rules(messages=1, epochs=3, crashes=0, elect_most_advanced=False)  # it may be the one that is passed over
FROM_SLAVES = frozenset({frozenset((0, 1)), frozenset((0, 2))})
EVERYBODY = FROM_SLAVES | {frozenset((1, 2))}


def test_a_master_that_only_its_slaves_cannot_reach_gives_way() -> None:
    found = look(Standing(RULES, FROM_SLAVES))
    assert not found.faults and not found.stuck and not found.flapping and found.states > 1000


def test_without_check_quorum_it_leads_for_ever_and_acknowledges_nothing() -> None:
    found = look(Standing(RULES, FROM_SLAVES, check_quorum=False))
    assert found.stuck and {state.epoch for state in found.stuck} == {1}


def test_a_coordinator_that_forgets_whom_it_sealed_may_choose_it_again_but_not_for_good() -> None:
    forgets = Standing(replace(RULES, elect_most_advanced=True), FROM_SLAVES, remembers=False)
    found = look(forgets)
    assert not found.faults and not found.stuck
    dropping = look(replace(forgets, rules=replace(forgets.rules, keeps_unheard=False)))
    led = {(state.holder, len(state.in_sync)) for state in dropping.stuck if state.holder >= 0}
    assert led == {(0, 1)}, "its log is the longest, and nobody else is in sync then"


@pytest.mark.parametrize("pair", [(0, 1), (1, 2)])
def test_one_link_that_is_cut_seals_nobody_who_can_acknowledge(pair: tuple[int, int]) -> None:
    found = look(Standing(replace(RULES, epochs=2), frozenset({frozenset(pair)})))
    assert not found.faults and not found.stuck and not found.flapping


def test_a_set_of_one_needs_nobody_and_is_left_alone() -> None:
    found = look(Standing(replace(RULES, epochs=2, min_in_sync=1), EVERYBODY))
    assert not found.faults and not found.stuck and not found.flapping


def test_one_that_leads_a_group_without_links_nothing_acknowledged_is_lost() -> None:
    found = look(Standing(RULES, EVERYBODY))
    assert not found.faults and found.stuck, "nobody can acknowledge, the master"


# Members and minInSync, and the links that stay cut: the master reaches one slave too few, the others each other.
# In a smaller group those that follow nobody are enough by themselves.
PARTIAL = [(4, 3, ((0, 2), (0, 3))), (5, 4, ((0, 3), (0, 4)))]


@pytest.mark.parametrize(("members", "least", "cut"), PARTIAL)
def test_a_master_with_one_slave_too_few_gives_way_to_members_that_are_enough(
    members: int, least: int, cut: tuple[tuple[int, int], ...]
) -> None:
    rules = Rules(members=members, min_in_sync=least, messages=0, epochs=2, crashes=0, elect_most_advanced=False)
    if members > 4:
        rules = replace(rules, spontaneous_shrink=False)
    standing = Standing(rules, frozenset(frozenset(pair) for pair in cut))
    found = look(standing)
    assert not found.faults and not found.stuck and not found.flapping and found.states > 1000
    assert look(replace(standing, counts_followers=False)).stuck, "a slave that still follows does not count"
