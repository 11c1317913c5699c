"""For how long a master may serve without asking."""

from __future__ import annotations

from gantry.replication.serving_lease import ServingLease


def test_a_serving_lease_lasts_two_thirds_of_the_lease_from_when_the_renewal_was_sent() -> None:
    serving_lease = ServingLease(3.0)
    assert not serving_lease.is_valid(0.0)
    serving_lease.renewed(100.0, 15)
    assert serving_lease.is_valid(109.9) and not serving_lease.is_valid(110.0)


def test_an_older_renewal_takes_nothing_away() -> None:
    serving_lease = ServingLease(3.0)
    serving_lease.renewed(100.0, 15)
    serving_lease.renewed(90.0, 15)
    assert serving_lease.is_valid(109.9)


def test_grants_of_everybody_else_in_the_set_are_as_good_as_a_lease() -> None:
    serving_lease = ServingLease(3.0)
    serving_lease.granted(1, 50.0, [1, 2])
    assert not serving_lease.is_valid(50.0), "member 2 has not said so"
    serving_lease.granted(2, 51.0, [1, 2])
    assert serving_lease.is_valid(52.9) and not serving_lease.is_valid(53.0), "the earliest of them counts"


def test_alone_in_the_set_only_the_lease_counts() -> None:
    serving_lease = ServingLease(3.0)
    serving_lease.granted(1, 50.0, [1])
    serving_lease.count([])
    assert not serving_lease.is_valid(51.0)


def test_who_joined_the_set_has_to_grant_too() -> None:
    serving_lease = ServingLease(3.0)
    serving_lease.granted(1, 50.0, [1])
    serving_lease.count([1, 2])
    assert not serving_lease.is_valid(51.0)
