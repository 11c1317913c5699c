"""What was taken back."""

from __future__ import annotations

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
    cancels.forget_before(200)
    assert len(cancels) == 1 and cancels.has(200, Address("", 0, b"b"))
