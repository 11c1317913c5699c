"""Breadth-first search over a model: every state that its moves can reach, until one is wrong or there are no more.

A state that was seen is remembered by its 64-bit hash and how it was reached, not whole: ten million of them fit into
2 GB, and the chance that two of them share a hash, so that one is not looked at, is some three in a million.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from simulation.failover_model import Rules, State, begin
from simulation.failover_model import fault as find_fault
from simulation.failover_moves import moves
from simulation.failover_symmetry import order_members

S = TypeVar("S", bound=Hashable)
STATES_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search found."""

    states: int
    is_whole: bool  # every reachable state was looked at
    fault: str = ""
    trace: list[str] = field(default_factory=list)  # a shortest way to the fault


def explore_states(
    firsts: Iterable[S], after: Callable[[S], Iterable[tuple[str, S]]], fault: Callable[[S], str]
) -> Verdict:
    """Look at every state that can be reached, or stop at the first fault."""
    return _explore_up_to(firsts, after, fault, STATES_MAX)


def search(rules: Rules, states_max: int = STATES_MAX, are_alike: bool = False) -> Verdict:
    """Look at every state of `failover_model` within the bounds of `rules`, or stop at the first fault.

    are_alike: states that differ in the numbers of the members only are looked at once; numbers in a trace may change.
    """
    assert not are_alike or not rules.register_losses, "a bootstrap goes by ordinals"

    def after(state: State) -> Iterator[tuple[str, State]]:
        for name, moved in moves(rules, state):
            yield name, order_members(moved) if are_alike and not moved.wrong else moved

    return _explore_up_to([begin(rules)], after, partial(find_fault, rules), states_max)


def _explore_up_to(
    firsts: Iterable[S], after: Callable[[S], Iterable[tuple[str, S]]], fault: Callable[[S], str], states_max: int
) -> Verdict:
    waiting = deque(firsts)
    seen: dict[int, tuple[int, str]] = {hash(state): (0, "") for state in waiting}
    while waiting:
        state = waiting.popleft()
        whence = hash(state)
        for name, reached in after(state):
            key = hash(reached)
            if key in seen:
                continue
            seen[key] = (whence, name)
            found = fault(reached)
            if found:
                return Verdict(len(seen), False, found, _trace(seen, key))
            waiting.append(reached)
        if len(seen) > states_max:
            return Verdict(len(seen), False)
    return Verdict(len(seen), True)


def _trace(seen: dict[int, tuple[int, str]], key: int) -> list[str]:
    names: list[str] = []
    whence, name = seen[key]
    while name:
        names.append(name)
        whence, name = seen[whence]
    return names[::-1]
