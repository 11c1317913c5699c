"""What a history of one register may show; see `linear`."""

from __future__ import annotations

import itertools
import random

import pytest

from simulation.histories import Histories
from simulation.linear import NEVER, Operation, Value, is_linearizable, shortest_wrong


def wrote(value: Value, begun_s: float, ended_s: float = NEVER) -> Operation:
    return Operation("w", begun_s, ended_s, True, value)


def saw(value: Value, begun_s: float, ended_s: float) -> Operation:
    return Operation("r", begun_s, ended_s, False, value)


@pytest.mark.parametrize(
    ("history", "is_so"),
    [
        ([saw(None, 0, 1)], True),
        ([saw("a", 0, 1)], False),
        ([wrote("a", 0, 1), saw("a", 2, 3)], True),
        ([wrote("a", 0, 1), saw(None, 2, 3)], False),
        ([wrote("a", 0, 4), saw(None, 1, 2), saw("a", 2.5, 3)], True),
        ([wrote("a", 0, 4), saw("a", 1, 2), saw(None, 2.5, 3)], False),
        ([wrote("a", 0), saw(None, 1, 2), saw("a", 8, 9)], True),
        ([wrote("a", 0), saw("a", 1, 2), saw(None, 8, 9)], False),
        ([wrote("a", 0), saw(None, 1, 2)], True),
        ([wrote("a", 0, 1), wrote("b", 0.5, 2), saw("a", 3, 4), saw("a", 5, 6)], True),
        ([wrote("a", 0, 1), wrote("b", 0.5, 2), saw("a", 3, 4), saw("b", 5, 6)], False),
        ([wrote("a", 0, 1), wrote(None, 2, 3), wrote(None, 2), saw("a", 4, 5)], False),
    ],
)
def test_time_decides_what_may_be_seen(history: list[Operation], is_so: bool) -> None:
    assert is_linearizable(history) == is_so
    assert bool(shortest_wrong(history)) == (not is_so)


def by_every_order(history: list[Operation]) -> bool:
    """The definition itself: some order of what has an end, and of some of the rest."""
    sure = [one for one in history if one.ended_s < NEVER]
    unsure = [one for one in history if one.ended_s == NEVER]
    for count in range(len(unsure) + 1):
        for some in itertools.combinations(unsure, count):
            for order in itertools.permutations([*sure, *some]):
                if _fits(order):
                    return True
    return False


def _fits(order: tuple[Operation, ...]) -> bool:
    value: Value = None
    for number, one in enumerate(order):
        if any(later.ended_s < one.begun_s for later in order[number:]):
            return False
        if one.is_write:
            value = one.value
        elif one.value != value:
            return False
    return True


def test_the_search_agrees_with_the_definition() -> None:
    chance, seen = random.Random(7), set()
    for _ in range(400):
        history = []
        for _ in range(chance.randrange(1, 6)):
            begun_s = chance.randrange(8)
            ended_s = begun_s + chance.randrange(1, 5)
            value = chance.choice((None, "a", "b"))
            if chance.random() < 0.5:
                history.append(wrote(value, begun_s, chance.choice((ended_s, ended_s, NEVER))))
            else:
                history.append(saw(value, begun_s, ended_s))
        is_so = is_linearizable(history)
        seen.add(is_so)
        assert is_so == by_every_order(history), [str(one) for one in history]
    assert seen == {True, False}


def test_two_who_work_on_one_queue_are_found() -> None:
    told = Histories()
    told.worked("a", ("orders", 0), 1.0, 4.0)
    told.worked("b", ("orders", 1), 1.0, 4.0)
    given_back = told.worked("c", ("orders", 2), 1.0, 4.0)
    given_back.ended_s = 2.0
    told.worked("d", ("orders", 2), 2.0, 5.0)
    told.worked("b", ("orders", 0), 4.0, 7.0)
    assert not told.wrong()
    told.worked("c", ("orders", 0), 6.9, 9.9)
    assert "c has ('orders', 0) from 6.9 on, and b works until 7.000" in told.wrong().replace("6.900", "6.9")
