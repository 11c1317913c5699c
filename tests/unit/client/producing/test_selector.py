"""Messages go round the queues, or by key to where a Java producer would put them."""

from __future__ import annotations

from gantry.client.producing.selector import Turn, by_key
from gantry.model.route import MessageQueue

QUEUES = [MessageQueue("T", name, number) for name in ("a", "b") for number in range(2)]


def test_each_queue_gets_its_turn() -> None:
    turn = Turn(3)
    assert [turn.select(QUEUES) for _ in range(5)] == [QUEUES[3], *QUEUES]


def test_a_group_to_avoid_is_left_out() -> None:
    turn = Turn()
    assert {turn.select(QUEUES, {"a"}).broker_name for _ in range(4)} == {"b"}


def test_when_every_group_is_to_be_avoided_one_is_taken_all_the_same() -> None:
    assert Turn().select(QUEUES, {"a", "b"}) in QUEUES


def test_a_key_meets_the_queue_that_javas_hash_selector_takes() -> None:
    # "order-1".hashCode() == -1207109556, "hello".hashCode() == 99162322
    assert by_key(QUEUES, "hello") == QUEUES[99162322 % 4]
    assert by_key(QUEUES, "order-1") == by_key(QUEUES, "order-1")
    assert by_key(QUEUES[:3], "polygenelubricants") == QUEUES[2147483648 % 3]  # hashCode() is Integer.MIN_VALUE
