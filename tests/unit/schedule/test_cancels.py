"""What was taken back."""

from __future__ import annotations

import tracemalloc

from gantry.schedule.cancels import Cancels
from gantry.schedule.disguise import Address


def test_a_message_is_named_by_topic_and_key_or_as_older_brokers_did_by_its_key() -> None:
    cancels = Cancels()
    cancels.add(100, b"ordersk")
    cancels.add(100, b"plain")
    assert cancels.has(100, Address("orders", 0, b"k")) and cancels.has(100, Address("bills", 0, b"plain"))
    assert not cancels.has(101, Address("orders", 0, b"k")) and not cancels.has(100, Address("bills", 0, b"k"))


def test_a_message_without_a_key_cannot_be_meant() -> None:
    cancels = Cancels()
    cancels.add(100, b"orders")
    cancels.add(100, b"")
    assert not cancels.has(100, Address("orders", 0, b"")) and len(cancels) == 1


def test_what_is_delivered_is_forgotten() -> None:
    cancels = Cancels()
    cancels.add(100, b"a")
    cancels.add(200, b"b")
    assert list(cancels.forget_before(200)) == []
    assert len(cancels) == 1 and cancels.has(200, Address("", 0, b"b"))


def test_a_name_of_any_length_takes_the_room_of_a_digest() -> None:
    cancels = Cancels()
    long = b"orders" + b"k" * 29_000
    tracemalloc.start()
    for due_ms in range(1000):
        assert cancels.add(due_ms, long + b"%d" % due_ms)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1000 * 300 and cancels.has(7, Address("orders", 0, long[6:] + b"7"))


def test_several_of_one_millisecond_are_each_known() -> None:
    cancels = Cancels()
    assert [cancels.add(5, b"orders%d" % number) for number in (1, 2, 2, 3, 1)] == [True, True, False, True, False]
    assert len(cancels) == 3 and all(cancels.has(5, Address("orders", 0, b"%d" % number)) for number in (1, 2, 3))
    assert list(cancels.forget_before(6)) == [] and not cancels and not cancels.has(5, Address("orders", 0, b"1"))


def test_forgetting_looks_only_at_what_is_past_and_gives_way() -> None:
    cancels = Cancels()
    for due_ms in range(10_000):
        cancels.add(due_ms, b"orders%d" % due_ms)
    assert len(list(cancels.forget_before(2500))) == 2 and len(cancels) == 7500
    assert list(cancels.forget_before(2500)) == []
    dues = cancels._names
    for _ in cancels.forget_before(2501):
        pass
    assert cancels._names is dues, "the table is not copied"
