"""For how long a master may serve without asking."""

from __future__ import annotations

from gantry.replication.serving_lease import LAPSED_S, LeaseNews, ServingLease

OTHERS = [1, 2]


def led(others: list[int]) -> ServingLease:
    """Of a master that renews every 2.5 s."""
    made = ServingLease(4.5, 3.0)
    made.count(others)
    return made


def test_a_master_serves_for_less_than_a_suspicion_from_when_its_renewal_was_sent() -> None:
    serving_lease = led(OTHERS)
    assert not serving_lease.is_valid(0.0)
    serving_lease.renewed(100.0, 15)
    assert serving_lease.is_valid(104.4) and not serving_lease.is_valid(104.5)


def test_a_master_that_nobody_can_replace_serves_for_two_thirds_of_the_lease() -> None:
    serving_lease = led([])
    serving_lease.renewed(100.0, 15)
    assert serving_lease.is_valid(109.9) and not serving_lease.is_valid(110.0)
    serving_lease.count([1])
    assert not serving_lease.is_valid(104.5), "now there is one that may be elected"


def test_an_older_renewal_takes_nothing_away() -> None:
    serving_lease = led(OTHERS)
    serving_lease.renewed(100.0, 15)
    serving_lease.renewed(90.0, 15)
    assert serving_lease.is_valid(104.4)


def test_a_shorter_lease_counts_from_the_moment_at_which_it_is_asked_for() -> None:
    serving_lease = led([])
    serving_lease.renewed(100.0, 60)
    serving_lease.limit(102.5, 60)
    assert serving_lease.is_valid(139.9), "the same lease again changes nothing"
    serving_lease.limit(102.5, 6)
    assert serving_lease.is_valid(106.4) and not serving_lease.is_valid(106.5)


def test_answers_of_everybody_else_in_the_set_are_as_good_as_a_renewal() -> None:
    serving_lease = led(OTHERS)
    serving_lease.answered(1, 50.0, OTHERS)
    assert not serving_lease.is_valid(50.0), "member 2 has not answered"
    serving_lease.answered(2, 51.0, OTHERS)
    assert serving_lease.is_valid(52.9) and not serving_lease.is_valid(53.0), "the earliest of them counts"


def test_a_member_whose_link_ended_may_have_promised_another_epoch() -> None:
    serving_lease = led(OTHERS)
    for place in OTHERS:
        serving_lease.answered(place, 50.0, OTHERS)
    serving_lease.lost(2)
    assert not serving_lease.is_valid(50.1)


def test_alone_in_the_set_only_the_lease_counts() -> None:
    serving_lease = led([1])
    serving_lease.answered(1, 50.0, [1])
    serving_lease.count([])
    assert not serving_lease.is_valid(51.0)


def test_who_joined_the_set_has_to_answer_too() -> None:
    serving_lease = led([1])
    serving_lease.answered(1, 50.0, [1])
    serving_lease.count(OTHERS)
    assert not serving_lease.is_valid(51.0)


def test_a_lease_that_is_over_is_told_after_a_while_and_once_and_so_is_its_return() -> None:
    serving_lease, told = led(OTHERS), list[bool]()
    news = LeaseNews(serving_lease, told.append)
    serving_lease.renewed(100.0, 15)
    for now_s in (100.0, 104.4, 104.5, 104.4 + LAPSED_S):
        news.look(now_s)
    assert told == [], "it may be renewed in a moment"
    for now_s in (104.5 + LAPSED_S, 120.0):
        news.look(now_s)
    assert told == [False]
    serving_lease.renewed(120.0, 15)
    for now_s in (120.1, 120.2):
        news.look(now_s)
    assert told == [False, True]


def test_a_lease_that_comes_back_in_time_is_no_news() -> None:
    serving_lease, told = led(OTHERS), list[bool]()
    news = LeaseNews(serving_lease, told.append)
    for at_s in (100.0, 105.0, 110.0):
        news.look(at_s)  # half a second over
        serving_lease.renewed(at_s, 15)
        news.look(at_s)
    assert told == []
