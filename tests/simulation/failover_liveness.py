"""Liveness of the failover model under a standing fault: links between members that stay cut for ever.

The moves are those of `failover_moves`, without what needs a cut link, and with a coordinator that seals for one reason
only: check-quorum (`failover.standing.is_cut_off`).  Nobody crashes, so suspicion never seals anybody.  The coordinator
remembers whom it sealed, and promotes that member only when nobody else of the set can be elected.

`look` goes through every reachable state and answers three questions:

    faults      is a state reached that `failover_model.fault` calls wrong?
    stuck       is there a state from which no state can be reached any more in which the master can acknowledge?
    flapping    is there a state in which the master can acknowledge and may be sealed all the same?

States of the last epoch that the bounds allow are not judged: what would follow them is cut off.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from simulation.failover_model import Phase, Replica, Rules, State, begin, fault, has_enough, is_recorded, required
from simulation.failover_moves import moves

_Node = tuple[State, int]  # and whom the coordinator passes over; -1: nobody
_OVER_A_LINK = re.compile(r"(?:join|heard|copy|offset|leave)(\d)(?:->|<-)(\d)")


@dataclass(frozen=True, slots=True)
class Standing:
    """The model's bounds, and what stays broken; which of its rules the coordinator has."""

    rules: Rules
    cut: frozenset[frozenset[int]]
    check_quorum: bool = True
    remembers: bool = True
    counts_followers: bool = True  # False: only those count who follow nobody

    def is_cut(self, one: int, other: int) -> bool:
        """Whether these two cannot reach each other."""
        return frozenset((one, other)) in self.cut


@dataclass(slots=True)
class Looked:
    """What was found; `stuck` and `flapping` are states, for the reader."""

    states: int
    faults: list[str]
    stuck: list[State]
    flapping: list[State]


def look(standing: Standing) -> Looked:
    """Go through every reachable state."""
    first = (begin(standing.rules), -1)
    whence: dict[_Node, list[_Node]] = defaultdict(list)
    seen, waiting, faults = {first}, deque([first]), []
    while waiting:
        node = waiting.popleft()
        for after in _moves(standing, *node):
            whence[after].append(node)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
                if found := fault(standing.rules, after[0]):
                    faults.append(found)
    good = [node for node in seen if can_acknowledge(standing, node[0])]
    led, waiting = set(good), deque(good)
    while waiting:
        for before in whence[waiting.popleft()]:
            if before not in led:
                led.add(before)
                waiting.append(before)
    stuck = [state for state, _ in seen - led if state.epoch < standing.rules.epochs]
    return Looked(len(seen), faults, stuck, [state for state, _ in good if may_seal(standing, state)])


def _moves(standing: Standing, state: State, passed_over: int) -> Iterator[_Node]:
    for name, after in moves(standing.rules, state):
        over = _OVER_A_LINK.match(name)
        if over and standing.is_cut(int(over[1]), int(over[2])):
            continue
        if name.startswith("SEAL"):
            if may_seal(standing, state):
                yield after, state.holder if standing.remembers else -1
        elif not (name.startswith("PROMOTE") and after.holder == passed_over and _in_sync(state) - {passed_over}):
            yield after, -1 if can_acknowledge(standing, after) else passed_over


def can_acknowledge(standing: Standing, state: State) -> bool:
    """Whether there is a master, everybody that it needs is connected to it, and they are enough."""
    master = _master(state)
    if master is None or not has_enough(standing.rules, master):
        return False
    needed = {ordinal for ordinal, _ in required(standing.rules, master)}
    return needed <= {state.holder, *_connected(standing, state)}


def may_seal(standing: Standing, state: State) -> bool:
    """Check-quorum: the master is short, some others are not connected, and with those who are in sync they are enough,
    of which one can be elected.
    """
    if not standing.check_quorum or _master(state) is None or can_acknowledge(standing, state):
        return False
    alone = set(range(standing.rules.members)) - {state.holder, *_connected(standing, state)}
    others = _in_sync(state) - {state.holder}
    able = alone | others if standing.counts_followers else alone
    return len(able) >= standing.rules.min_in_sync and bool(alone) and bool(others)


def _in_sync(state: State) -> set[int]:
    return {who for who, incarnation in state.in_sync if state.replicas[who].incarnation == incarnation}


def _master(state: State) -> Replica | None:
    """The register's master, once it acts as such."""
    is_led = state.phase is Phase.ACTIVE and is_recorded(state, state.holder)
    return state.replicas[state.holder] if is_led else None


def _connected(standing: Standing, state: State) -> set[int]:
    link = state.holder, state.epoch
    return {
        who
        for who, replica in enumerate(state.replicas)
        if replica.link == link and not standing.is_cut(who, state.holder)
    }
