"""Which task reads what: every message in one of them, and the same ones each time."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pyspark_gantrymq.offsets import Queue, Stretch
from pyspark_gantrymq.planning import Plan, bins

STRETCHES = st.dictionaries(
    st.builds(Queue, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 7)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)),
    max_size=16,
).map(lambda found: [Stretch(queue, at, at + length) for queue, (at, length) in found.items()])
LIMIT = st.integers(0, 40)
PLANS = st.builds(Plan, LIMIT, LIMIT, st.just(0) | st.integers(1000, 10**6), st.integers(1000, 10**6))


@given(STRETCHES, PLANS)
def test_every_message_is_in_exactly_one_task(stretches: list[Stretch], plan: Plan) -> None:
    pieces = sorted([piece for each in bins(stretches, plan) for piece in each])
    for one in stretches:
        at = one.start
        for piece in pieces:
            if piece.queue == one.queue:
                assert piece.start == at < piece.end
                at = piece.end
        assert at == one.end
    assert sum([piece.end - piece.start for piece in pieces]) == sum([one.end - one.start for one in stretches])


@given(STRETCHES, PLANS, st.randoms(use_true_random=False))
def test_tasks_are_the_same_in_whatever_order_queues_are_named(
    stretches: list[Stretch], plan: Plan, chance: random.Random
) -> None:
    other = chance.sample(stretches, len(stretches))
    assert bins(stretches, plan) == bins(other, plan)


def test_queues_with_little_share_a_task_and_nothing_is_split_unasked() -> None:
    few = [Stretch(Queue("t", "b", number), 0, 10) for number in range(8)]
    assert len(bins(few, Plan())) == 1
    assert bins([Stretch(Queue("t", "b", 0), 0, 10**6)], Plan()) == [[Stretch(Queue("t", "b", 0), 0, 10**6)]]


def test_many_partitions_or_short_ones_split_a_queue() -> None:
    one = [Stretch(Queue("t", "b", 0), 5, 105)]
    assert [len(each) for each in bins(one, Plan(bins_min=4))] == [1, 1, 1, 1]
    assert max([piece.end - piece.start for each in bins(one, Plan(piece_rows_max=30)) for piece in each]) == 25


def test_there_are_no_more_tasks_than_allowed() -> None:
    many = [Stretch(Queue("t", "b", number), 0, 10**6) for number in range(8)]
    assert len(bins(many, Plan(bins_max=3))) == 3
