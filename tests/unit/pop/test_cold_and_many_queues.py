"""Pops of topics with many queues, and of messages that are on the disk: each is answered, and no queue is left out."""

from __future__ import annotations

import pytest

from gantry.leaves.frames import Command
from gantry.model.topic import TopicConfig
from gantry.store.settings import Flush
from testkit.popplay import TOPIC, pop_request, popped
from testkit.popstoreplay import PopPlay

STEPS = 40  # of the background threads; a pop that goes on for ever takes more


def answers(play: PopPlay, command: Command) -> list[Command]:
    """What is answered to a pop while the threads get on a little."""
    opaque = play.give(command)
    found: list[Command] = []
    for _ in range(STEPS):
        found += [reply for reply in play.connection.take() if reply.opaque == opaque]
        if found or not play.background.step():
            break
    return found


@pytest.mark.parametrize("is_order", ["false", "true"])
async def test_a_pop_of_a_topic_with_more_queues_than_an_attempt_has_fetches_looks_at_all_of_them_once(
    is_order: str,
) -> None:
    play = PopPlay(Flush.SYNC)
    play.topics.put(TopicConfig(TOPIC, read_queues=120, write_queues=120))
    (reply,) = answers(play, pop_request(1, order=is_order))
    assert reply.code == 210
    for queue_id in (0, 60, 119):
        play.send(b"%d" % queue_id, queue_id=queue_id)
        play.flush()
        (reply,) = answers(play, pop_request(1, order=is_order))
        assert [one.body for one in popped(reply)] == [b"%d" % queue_id]


@pytest.mark.parametrize("is_order", ["false", "true"])
@pytest.mark.parametrize("reader", ["reads for nothing", "is full"])
async def test_a_pop_of_messages_that_do_not_stay_in_memory_is_answered(reader: str, is_order: str) -> None:
    """As when memory is short, and with pure leaves, which cannot ask the kernel what is in memory."""
    play = PopPlay(Flush.SYNC, warm_bytes=1)
    for number in range(3):
        play.send(b"m%d" % number)
    play.send(b"x" * 4_000, topic="other")
    play.flush()
    if reader == "is full":
        play.background.cold_reader.submit = lambda *_: False  # type: ignore[method-assign]
    (reply,) = answers(play, pop_request(2, order=is_order, queueId=0))
    assert [one.body for one in popped(reply)] == [b"m0", b"m1"]
    play.flush()
    assert play.pops.pops._reads == 0, "and makes room for others"


def test_a_queue_on_the_disk_is_read_although_another_one_always_has_messages() -> None:
    play = PopPlay(Flush.SYNC, warm_bytes=8_000)
    play.send(b"old")
    for _ in range(3):
        play.send(b"x" * 4_000, topic="other")
    begun: list[object] = []
    play.store.bring_in = lambda places, done, ahead_bytes=0: begun.append(places)  # type: ignore[method-assign]
    for _ in range(3):
        play.send(b"new", queue_id=1)
        play.flush()
        assert [one.body for one in popped(play.ask_now(pop_request()))] == [b"new"]
    assert len(begun) == 1, "it is read once, until it has come"
