"""Delayed messages of HTTP queues: their life, and delays of up to seven days."""

from __future__ import annotations

import pytest

from testkit.queueplay import QUEUE, QueuePlay

DAY_MS = 86_400_000


def test_a_message_whose_life_ends_before_its_delay_is_never_seen() -> None:
    play = QueuePlay(life_s=3)
    sent = play.put(b"never", delay_ms=4_000)
    assert play.put(b"soon", delay_ms=2_000).handle
    play.pass_durably(2_900)
    assert play.peek() == [b"soon"]
    play.pass_durably(2_000)
    assert play.visible(QUEUE) == [b"soon"] and play.peek() == []
    assert play.service.counts.expired == 1
    assert play.commit(sent.handle) is None and not play.cancel(sent.handle)


@pytest.mark.parametrize("stop", ["", "crash"])
def test_a_late_commit_of_a_message_whose_life_is_over_is_refused(stop: str) -> None:
    play = QueuePlay(life_s=3)
    in_time, late = (play.put(body, delay_ms=100_000).handle for body in (b"in time", b"late"))
    play.pass_durably(2_000)
    assert play.commit(in_time, 500)
    play.pass_durably(900)
    assert [one.body for one in play.take()] == [b"in time"]
    play.pass_durably(200)
    if stop:
        play.crash()
    assert play.commit(late) is None and not play.cancel(late)
    play.pass_durably(110_000, 10_000)
    assert play.visible(QUEUE) == [b"in time"]


def test_a_life_that_is_made_longer_counts_for_waiting_messages() -> None:
    play = QueuePlay(life_s=3)
    handle = play.put(b"m", delay_ms=100_000).handle
    play.pass_durably(4_000)
    assert play.commit(handle) is None
    play.set_life(60)
    assert play.commit(handle, 100)
    play.pass_durably(500)
    assert play.peek() == [b"m"]


def test_messages_of_a_queue_may_wait_for_seven_days_and_others_for_three() -> None:
    play = QueuePlay()
    assert play.put(b"far", delay_ms=7 * DAY_MS).code == 0
    assert play.put(b"too far", delay_ms=7 * DAY_MS + 1).code == 13
    assert play.send(b"x", "orders", TIMER_DELAY_MS=str(3 * DAY_MS + 1)).code == 13
    handle = play.put(b"long", delay_ms=6 * DAY_MS).handle
    handle = play.commit(handle, 7 * DAY_MS) or ""
    assert handle and play.cancel(handle)


def test_a_run_of_messages_is_judged_one_by_one_when_a_life_is_over() -> None:
    play = QueuePlay(life_s=3)
    play.put(b"old", delay_ms=2_900)
    play.clock.advance(1_000)
    for number in range(3):
        play.send(b"young%d" % number, QUEUE, TIMER_DELAY_MS="2000")
    play.flush()
    play.clock.advance(2_000)
    play.pass_durably(100)
    assert play.peek() == [b"young0", b"young1", b"young2"]
    assert play.service.counts.expired == 1
