"""Whose turn it is among the places of a simple consumer."""

from __future__ import annotations

from gantry.client.consuming.popturns import SHUN_S, PopTurns
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription

PLACES = [(MessageQueue("T", name, -1), Subscription("T")) for name in "abc"]


def names(turns: PopTurns, now_s: float) -> str:
    return "".join(target.broker_name for target, _ in turns.order(PLACES, now_s))


def test_each_round_begins_one_place_further() -> None:
    turns = PopTurns()
    assert [names(turns, 0.0) for _ in range(4)] == ["abc", "bca", "cab", "abc"]


def test_a_place_that_failed_is_left_out_for_a_moment_unless_it_is_the_only_one() -> None:
    turns = PopTurns()
    turns.failed(PLACES[0][0], 0.0, 0.0)
    assert [names(turns, 0.0), names(turns, SHUN_S / 2)] == ["bc", "cb"]
    assert sorted(names(turns, SHUN_S)) == ["a", "b", "c"]
    for target, _ in PLACES:
        turns.failed(target, 10.0, 10.0)
    assert sorted(names(turns, 10.0)) == ["a", "b", "c"]


def test_a_place_whose_failure_takes_long_takes_a_third_of_the_time_at_most() -> None:
    turns, now_s, lost_s = PopTurns(), 0.0, 0.0
    while now_s < 600.0:
        if "a" in names(turns, now_s):
            turns.failed(PLACES[0][0], now_s, now_s + 10.0)
            now_s, lost_s = now_s + 10.0, lost_s + 10.0
        now_s += 1.0
    assert lost_s <= 200.0
