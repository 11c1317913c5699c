"""How long a member may work, by what it was told and when it asked."""

from __future__ import annotations

from gantry.client.consuming.queue_lock import Lease


def test_nothing_is_held_before_the_first_yes() -> None:
    lease = Lease(30.0)
    assert not lease.is_held(0.0)
    assert lease.left_s(0.0) == 0.0


def test_a_yes_counts_from_the_moment_of_asking() -> None:
    lease = Lease(30.0)
    lease.granted(asked_at=100.0)
    assert lease.is_held(129.9)
    assert lease.left_s(125.0) == 5.0
    assert not lease.is_held(130.0)


def test_a_late_answer_to_an_older_request_takes_nothing_back() -> None:
    lease = Lease(30.0)
    lease.granted(asked_at=120.0)
    lease.granted(asked_at=100.0)
    assert lease.is_held(149.0)


def test_a_no_ends_it_at_once() -> None:
    lease = Lease(30.0)
    lease.granted(asked_at=100.0)
    lease.refused()
    assert not lease.is_held(100.0)


def test_a_held_one_is_renewed_and_a_missing_one_asked_for_more_often() -> None:
    lease = Lease(30.0)
    assert lease.is_due(0.0, 20.0, 1.0)
    lease.asked(0.0)
    assert not lease.is_due(0.9, 20.0, 1.0)
    assert lease.is_due(1.0, 20.0, 1.0)
    lease.granted(0.0)
    assert not lease.is_due(19.9, 20.0, 1.0)
    assert lease.is_due(20.0, 20.0, 1.0)


def test_one_that_is_given_back_is_not_asked_for_again_whatever_still_comes() -> None:
    lease = Lease(30.0)
    lease.granted(asked_at=100.0)
    lease.asked(101.0)
    lease.end()
    lease.granted(asked_at=101.0)
    assert not lease.is_held(102.0) and not lease.is_due(1000.0, 20.0, 1.0)
