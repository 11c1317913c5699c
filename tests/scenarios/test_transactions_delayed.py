"""Transactions whose messages ask for a delay: it counts from the commit on, and is checked when the half is sent."""

from __future__ import annotations

import pytest

from gantry.model import names
from testkit.transactionplay import COMMIT, ROLLBACK, TransactionPlay


@pytest.mark.parametrize(
    ("pairs", "topic"),
    [({"DELAY": "3"}, names.SCHEDULE_TOPIC), ({"TIMER_DELAY_MS": "500"}, names.TIMER_TOPIC)],
)
def test_a_delay_counts_from_the_commit_on(pairs: dict[str, str], topic: str) -> None:
    play = TransactionPlay()
    half = play.half(b"paid", **pairs)
    assert half.code == 0 and play.visible(topic) == []
    play.clock.advance(5000)
    assert play.end(half, COMMIT) == 0
    assert [body for body, _ in play.visible(topic)] == [b"paid"] and play.visible() == []
    queue_id = 2 if "DELAY" in pairs else 0
    entry = play.store.reader.entry(topic, queue_id, 0)
    assert entry is not None
    assert entry[2] == play.clock.now_ms() + (10_000 if "DELAY" in pairs else 500)
    assert play.end(half, COMMIT) == 0, "settled once, answered again"
    assert len(play.visible(topic)) == 1


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME"])
def test_a_time_of_day_stays_that_time_whenever_the_commit_comes(name: str) -> None:
    play = TransactionPlay()
    due_ms = play.clock.now_ms() + 60_000
    half = play.half(b"paid", **{name: str(due_ms)})
    play.clock.advance(20_000)
    assert play.end(half, COMMIT) == 0 and play.visible() == []
    entry = play.store.reader.entry(names.TIMER_TOPIC, 0, 0)
    assert entry is not None and entry[2] == due_ms


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME"])
def test_a_time_that_has_passed_at_the_commit_means_at_once(name: str) -> None:
    play = TransactionPlay()
    half = play.half(b"paid", **{name: str(play.clock.now_ms() + 100)})
    play.clock.advance(200)
    assert play.end(half, COMMIT) == 0 and len(play.visible()) == 1


def test_a_rolled_back_half_is_not_delivered_later_either() -> None:
    play = TransactionPlay()
    half = play.half(b"paid", DELAY="1")
    assert play.end(half, ROLLBACK) == 0
    assert play.visible() == [] and play.visible(names.SCHEDULE_TOPIC) == []


@pytest.mark.parametrize("pairs", [{"DELAY": "soon"}, {"TIMER_DELAY_SEC": "999999"}])
def test_what_could_not_be_delayed_is_refused_when_the_half_is_sent(pairs: dict[str, str]) -> None:
    assert TransactionPlay().half(b"paid", **pairs).code == 13
