"""Pops of HTTP queues by priority, and the numbers of redelivered messages."""

from __future__ import annotations

import pytest

from testkit.queueplay import QUEUE, RETRY, QueuePlay


def test_a_pop_by_priority_reads_the_lowest_queue_first() -> None:
    play = QueuePlay()
    for priority in (16, 3, 8, 1, 3):
        play.put(b"p%d" % priority, priority)
    assert play.peek() == [b"p1", b"p3", b"p3", b"p8", b"p16"]
    assert [one.body for one in play.take(2)] == [b"p1", b"p3"]
    assert [one.body for one in play.take()] == [b"p3", b"p8", b"p16"]


def test_redelivered_messages_keep_their_priority_and_come_before_new_ones_of_it() -> None:
    play = QueuePlay()
    for priority in (5, 2, 16):
        play.put(b"old%d" % priority, priority)
    assert len(play.take(visibility_ms=1_000)) == 3
    for priority in (2, 1, 16):
        play.put(b"new%d" % priority, priority)
    play.pass_durably(2_000)
    again = play.take(visibility_ms=1_000)
    assert [one.body for one in again] == [b"new1", b"old2", b"new2", b"old5", b"old16", b"new16"]
    assert [(one.topic, one.queue_id) for one in again if one.body.startswith(b"old")] == [
        (RETRY, 1),
        (RETRY, 4),
        (RETRY, 15),
    ]
    config = play.topics.get(RETRY)
    assert config is not None and (config.read_queues, config.write_queues) == (16, 16)
    play.pass_durably(2_000)
    assert [one.body for one in play.take()] == [b"new1", b"old2", b"new2", b"old5", b"old16", b"new16"]


def test_a_plain_topic_that_becomes_a_queue_has_its_retry_topic_grow() -> None:
    play = QueuePlay()
    play.topics.delete(QUEUE)
    play.put(b"plain", 1)
    play.take(visibility_ms=500)
    play.pass_durably(1_000)
    config = play.topics.get(RETRY)
    assert config is not None and config.read_queues == 1
    play.make()
    play.put(b"low", 16)
    play.take(visibility_ms=500)
    play.pass_durably(1_500)
    assert [(one.body, one.queue_id) for one in play.take()] == [(b"plain", 0), (b"low", 15)]


@pytest.mark.parametrize("queue_id", [0, 4])
def test_a_pop_of_one_priority_gets_its_redelivered_messages_too(queue_id: int) -> None:
    play = QueuePlay()
    for priority in (1, 5):
        play.put(b"%d" % (priority - 1), priority)
    play.take(visibility_ms=500)
    play.pass_durably(1_500)
    one = play.peek_of(queue_id)
    assert one == [b"%d" % queue_id]
