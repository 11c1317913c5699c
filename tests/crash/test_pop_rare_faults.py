"""Popped messages over rare orders of events: a topic made again, a clock set back behind ended leases, a run of
records of which a crash kept the beginning.
"""

from __future__ import annotations

from gantry.store.settings import Flush
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.popplay import GROUP, TOPIC, batch_ack_request, pop_request, popped
from testkit.popstoreplay import PopPlay


def sent(count: int) -> PopPlay:
    """A broker with durable messages m0, m1, ... of one queue."""
    play = PopPlay(Flush.SYNC)
    for number in range(count):
        play.send(b"m%d" % number)
    play.flush()
    return play


def durably(play: PopPlay, milliseconds: int) -> None:
    """Let time pass on a disk that is quick."""
    for _ in range(milliseconds // 100):
        play.pass_ms(100)
        play.flush()


def read_and_deleted(count: int) -> PopPlay:
    """A broker whose topic was popped to its end, deleted, and made again without messages."""
    play = sent(count)
    assert not play.ask_now(batch_ack_request(popped(play.ask_now(pop_request(count))))).body
    config = play.topics.get(TOPIC)
    assert config is not None
    play.topics.delete(TOPIC)
    play.topics.ensure(config)
    return play


def test_a_group_that_popped_a_topic_made_again_begins_at_its_first_message_after_a_start() -> None:
    play = read_and_deleted(3)
    assert play.ask_now(pop_request(1, initMode=1)).code == 210
    play.send(b"new")
    play.flush()
    play.offsets.file.save_now()
    play.kill()
    # What a member that pulls asks, before it chooses where to begin.
    assert play.offsets.query(GROUP, TOPIC, 0) == 0


def test_a_look_at_a_topic_made_again_lets_no_commit_of_the_deleted_one_count() -> None:
    play = read_and_deleted(3)
    looks = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1"}
    assert play.ask_now(request(RequestCode.PEEK_MESSAGE, looks)).code == 210
    play.offsets.commit(GROUP, TOPIC, 0, 3)  # by a member that still pulls the deleted topic
    for number in range(5):
        play.send(b"new%d" % number)
    play.flush()
    assert [one.body for one in popped(play.ask_now(pop_request()))] == [b"new%d" % number for number in range(5)]
