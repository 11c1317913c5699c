"""Queues of a member as RocketMQ's broker allocates them."""

from __future__ import annotations

import pytest

from gantry.model.route import MessageQueue
from gantry.pop.assignment import POP, Mode, share_of

QUEUES = [MessageQueue("T", broker, number) for broker in ("b", "a") for number in range(4)]
MEMBERS = ["c2", "c1", "c3"]


def ids(member: str, strategy: str = "AVG", mode: Mode | None = None, members: list[str] = MEMBERS) -> list[str] | None:
    queues = share_of(member, members, QUEUES, strategy, mode or Mode())
    return None if queues is None else [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_neighbouring_queues_are_distributed_evenly_over_the_sorted_members() -> None:
    assert [ids(member) for member in ("c1", "c2", "c3")] == [["a0", "a1", "a2"], ["a3", "b0", "b1"], ["b2", "b3"]]


def test_by_circle_every_nth_queue_is_a_members() -> None:
    assert [ids(member, "AVG_BY_CIRCLE") for member in ("c1", "c2", "c3")] == [
        ["a0", "a3", "b2"],
        ["a1", "b0", "b3"],
        ["a2", "b1"],
    ]


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
def test_with_more_members_than_queues_the_last_ones_pull_nothing(strategy: str) -> None:
    members = [f"c{number:02}" for number in range(10)]
    shares = [ids(member, strategy, members=members) for member in members]
    assert shares == [["a0"], ["a1"], ["a2"], ["a3"], ["b0"], ["b1"], ["b2"], ["b3"], [], []]


@pytest.mark.parametrize("share_queues", [-1, 0, 2, 99])
def test_a_pop_shared_by_all_has_one_entry_for_each_broker(share_queues: int) -> None:
    assert ids("c1", mode=Mode(POP, share_queues)) == ["a-1", "b-1"]
    assert ids("a stranger", mode=Mode(POP, share_queues)) == ["a-1", "b-1"]  # as RocketMQ


def test_a_pop_shared_by_some_has_the_queues_of_the_next_members_too() -> None:
    assert ids("c1", mode=Mode(POP, 1)) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert ids("c3", mode=Mode(POP, 1)) == ["a0", "a1", "a2", "b2", "b3"]
    many = [f"c{number:02}" for number in range(10)]
    last = [ids(member, mode=Mode(POP, 1), members=many) for member in many[7:]]
    assert last == [["b3"], ["a0"], ["a1"]]


def test_no_answer_is_not_an_empty_answer() -> None:
    assert ids("c1", "CONSISTENT_HASH") is None
    assert ids("c1", members=[]) is None
    assert share_of("c1", MEMBERS, [], "AVG", Mode()) is None
    assert ids("a stranger") == []  # the lists are known, and it is not a member
