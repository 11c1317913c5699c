"""Which commits the member that leads has to know, and what it has to say of topics; see `leads` and `knowntopics`."""

from __future__ import annotations

from typing import cast

import pytest

from simulation.knowntopics import KnownTopics
from simulation.leads import SAVED_S, TOLD_S, Commit, Leads
from simulation.ledger import Attempt, Ledger
from simulation.member import Member


class Host:
    """What is asked of a member."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.died_s: list[float] = []
        self.is_troubled = False
        self.broker: object = object()

    def had_trouble(self, start_s: float, end_s: float) -> bool:
        return self.is_troubled


class Story:
    """`a` leads from 0 on, and takes a commit at 10."""

    def __init__(self, is_first: bool = False) -> None:
        self.ledger = Ledger(is_sync=True)
        self.a, self.b = Host("a"), Host("b")
        self.leads = Leads(cast("list[Member]", [self.a, self.b]), self.ledger)
        self.leads.began(0.0, "a")
        self.commit = Commit(7, 9.9, 10.0, "a", is_first)

    def send(self, at_s: float) -> None:
        self.ledger.acknowledged(Attempt(b"", "p", "orders", 0, at_s, at_s + 0.1, acked_by="a"))

    def keeps(self, next_master: str, since_s: float) -> bool:
        self.leads.began(since_s, next_master)
        return self.leads.keeps(self.commit)


def test_a_master_knows_its_own_commits() -> None:
    assert Story().leads.keeps(Story().commit)


def test_who_lives_again_does_not_lead() -> None:
    story = Story()
    assert story.leads.is_last("a") and not story.leads.is_last("b")
    story.a.broker = object()
    assert not story.leads.is_last("a")


@pytest.mark.parametrize(("later_s", "is_kept"), [(TOLD_S - 0.1, False), (TOLD_S, True)])
def test_slaves_know_what_came_a_second_before_an_acknowledged_message(later_s: float, is_kept: bool) -> None:
    story = Story()
    story.send(10.0 + later_s)
    assert story.keeps("b", 20.0) == is_kept


def test_a_first_offset_is_always_kept() -> None:
    assert Story(is_first=True).keeps("b", 10.1)


def test_a_commit_at_a_master_that_was_replaced_may_be_gone() -> None:
    story = Story(is_first=True)
    story.leads.began(9.0, "b")
    assert not story.leads.keeps(story.commit)


@pytest.mark.parametrize(("died_s", "is_kept"), [(11.6 + SAVED_S - 0.1, False), (11.6 + SAVED_S, True), (30.0, True)])
def test_a_slave_that_dies_knows_what_it_saved(died_s: float, is_kept: bool) -> None:
    story = Story()
    story.send(11.5)
    story.b.died_s.append(died_s)
    assert story.keeps("b", 40.0) == is_kept
    story.b.is_troubled = True
    assert not story.leads.keeps(story.commit)


def test_a_slave_that_comes_back_is_told_everything_again() -> None:
    story = Story()
    story.b.died_s.append(12.0)
    story.send(11.5)
    story.send(13.0)
    assert story.keeps("b", 20.0)


@pytest.mark.parametrize(("died_s", "is_kept"), [(12.0, False), (10.0 + SAVED_S, True)])
def test_a_master_that_dies_and_leads_again_knows_what_it_saved(died_s: float, is_kept: bool) -> None:
    story = Story()
    story.send(11.5)
    story.a.died_s.append(died_s)
    assert story.keeps("a", 20.0) == is_kept


def test_the_first_death_after_a_commit_decides() -> None:
    story = Story()
    story.a.died_s += [12.0, 30.0]
    assert not story.keeps("a", 40.0)


def test_what_one_master_did_not_know_a_later_one_need_not_know() -> None:
    story = Story()
    assert not story.keeps("b", 11.0)
    story.send(13.0)
    assert not story.keeps("a", 20.0)


# -- topics


def test_the_last_answered_change_is_known() -> None:
    known = KnownTopics()
    known.answered(known.begin("t", "1/1"))
    assert known.values["t"].value == "1/1"
    deletion = known.begin("t", None)
    assert "t" not in known.values
    known.answered(deletion)
    assert known.values["t"].value is None


def test_nothing_is_known_after_two_changes_at_the_same_time() -> None:
    known = KnownTopics()
    first, second = known.begin("t", "1/1"), known.begin("t", None)
    known.answered(first)
    known.answered(second)
    assert "t" not in known.values


def test_a_change_without_an_answer_is_over_when_another_one_leads() -> None:
    known = KnownTopics()
    known.unanswered(known.begin("t", "1/1"), is_over=False)
    known.answered(known.begin("t", None))
    assert "t" not in known.values
    known.led()
    known.answered(known.begin("t", None))
    assert known.values["t"].value is None
