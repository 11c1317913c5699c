"""Breadth-first search over a model: every state that its moves can reach, until one is wrong or there are no more.

A state that was seen is remembered by its 64-bit hash and how it was reached, not whole: ten million of them fit into
2 GB, and the chance that two of them share a hash, so that one is not looked at, is some three in a million.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from simulation.failover_model import Rules, begin, fault
from simulation.failover_moves import moves


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search found."""

    states: int
    is_whole: bool  # every reachable state was looked at
    fault: str = ""
    trace: list[str] = field(default_factory=list)  # a shortest way to the fault


def search(rules: Rules, states_max: int = 20_000_000) -> Verdict:
    """Look at every state within the bounds of `rules`, or stop at the first fault."""
    first = begin(rules)
    seen: dict[int, tuple[int, str]] = {hash(first): (0, "")}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        whence = hash(state)
        for name, after in moves(rules, state):
            key = hash(after)
            if key in seen:
                continue
            seen[key] = (whence, name)
            found = fault(rules, after)
            if found:
                return Verdict(len(seen), False, found, _trace(seen, key))
            waiting.append(after)
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
