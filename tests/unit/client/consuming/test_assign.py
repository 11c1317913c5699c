"""Every member computes the same distribution, and it is RocketMQ's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.client.consuming.assign import share_of
from gantry.model.route import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", number) for number in range(count)]


def share_by_javas_formula(index: int, members: int, count: int) -> list[int]:
    """AllocateMessageQueueAveragely, line by line."""
    mod = count % members
    average = 1 if count <= members else (count // members + 1 if mod > 0 and index < mod else count // members)
    start = index * average if (mod > 0 and index < mod) else index * average + mod
    size = min(average, count - start)
    return [(start + step) % count for step in range(size)]


@given(st.integers(1, 12), st.integers(1, 40))
def test_shares_are_those_of_javas_average_allocation(members: int, count: int) -> None:
    names = [f"member-{number:02}" for number in range(members)]
    for index, name in enumerate(names):
        ids = [queue.queue_id for queue in share_of(name, names, queues(count))]
        assert ids == share_by_javas_formula(index, members, count)


@given(st.permutations(["a", "b", "c"]), st.permutations(queues(7)))
def test_the_order_of_the_lists_does_not_matter(members: list[str], shuffled: list[MessageQueue]) -> None:
    shares = [share_of(member, members, shuffled) for member in ("a", "b", "c")]
    assert [queue.queue_id for share in shares for queue in share] == list(range(7))


def test_a_member_that_the_broker_does_not_know_yet_gets_nothing() -> None:
    assert share_of("new", ["old"], queues(4)) == []


def test_brokers_come_in_the_order_of_their_names() -> None:
    two = [MessageQueue("T", name, number) for name in ("b", "a") for number in (1, 0)]
    assert share_of("x", ["x", "y"], two) == [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)]
