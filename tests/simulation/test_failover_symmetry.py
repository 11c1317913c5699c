"""Renumbering members changes nothing but numbers, so one of all renumbered states is enough; `failover_symmetry`."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulation.failover_cases import FOUND, SAFE
from simulation.failover_model import Rules, State, begin, fault
from simulation.failover_moves import moves
from simulation.failover_search import search
from simulation.failover_symmetry import order_members, renumber_members

ALIKE = [case for case in SAFE if case.rules.members > 2 and not case.rules.register_losses]


def walk_once(rules: Rules, chance: random.Random, steps: int) -> list[State]:
    """States on one way from the beginning."""
    states = [begin(rules)]
    while len(states) < steps and (ways := list(moves(rules, states[-1]))):
        states.append(chance.choice(ways)[1])
    return states


@pytest.mark.parametrize("case", ALIKE, ids=lambda case: case.name)
def test_what_may_happen_does_not_depend_on_who_is_who(case) -> None:  # type: ignore[no-untyped-def]
    chance = random.Random(case.name)
    for _ in range(5):
        for state in walk_once(case.rules, chance, 40):
            number = list(range(case.rules.members))
            chance.shuffle(number)
            other = renumber_members(state, number)
            assert bool(fault(case.rules, other)) == bool(fault(case.rules, state))
            assert order_members(other) == order_members(state), "seen as one"
            ways = {renumber_members(after, number) for _, after in moves(case.rules, state)}
            assert ways == {after for _, after in moves(case.rules, other)}


def test_a_fault_is_found_among_fewer_states() -> None:
    case = next(case for case in FOUND if case.name.startswith("5 members, minInSync 4"))
    assert search(case.rules, are_alike=True).fault == search(case.rules).fault
    safe = replace(case.rules, keeps_unheard=True, members=4, min_in_sync=3)
    every, one_of_all = search(safe), search(safe, are_alike=True)
    assert every.is_whole and one_of_all.is_whole and one_of_all.states < every.states / 4
