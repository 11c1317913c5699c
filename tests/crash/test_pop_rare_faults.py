"""Popped messages over rare orders of events: a topic made again, a clock set back behind ended leases, a run of
records of which a crash kept the beginning.
"""

from __future__ import annotations

from gantry.errors import Refusal
from gantry.store.settings import Flush
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from testkit.orderplay import DLQ, INVISIBLE_MS, OrderPlay
from testkit.popplay import GROUP, TOPIC, ack_request, batch_ack_request, change_request, pop_request, popped
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


def test_a_pop_of_a_topic_made_again_commits_where_its_group_begins() -> None:
    play = read_and_deleted(3)
    assert play.pops.service.positions.go_on((GROUP, TOPIC, 0)) == 0
    assert play.offsets.of(GROUP, TOPIC)[0] == 0


def test_a_look_at_a_topic_made_again_lets_no_commit_of_the_deleted_one_count() -> None:
    play = read_and_deleted(3)
    looks = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1"}
    assert play.ask_now(request(RequestCode.PEEK_MESSAGE, looks)).code == 210
    play.offsets.commit(GROUP, TOPIC, 0, 3)  # by a member that still pulls the deleted topic
    for number in range(5):
        play.send(b"new%d" % number)
    play.flush()
    assert [one.body for one in popped(play.ask_now(pop_request()))] == [b"new%d" % number for number in range(5)]


def test_a_lease_whose_messages_were_copied_closes_none_of_a_newer_one_after_a_clock_was_set_back() -> None:
    play = sent(3)
    assert len(popped(play.ask_now(pop_request(3, 500)))) == 3
    while len(play.visible("%RETRY%workers_orders")) < 3:
        play.pass_ms(10)
        play.flush()
    play.offsets.reset(GROUP, TOPIC, 0, 0, marks=False)
    play.clock.jump(-10_000)
    again = popped(play.ask_now(pop_request(32, 60_000)))
    play.kill()
    leased = [one for one in again if one.topic == TOPIC]
    assert [one.body for one in leased] == [b"m0", b"m1", b"m2"]
    for one in leased:
        assert play.ask_now(ack_request(one)).ext["gantryVerdict"] == "open"


def test_a_change_of_which_only_the_new_lease_was_kept_stays_over_the_end_of_that_lease() -> None:
    play = sent(1)
    (one,) = popped(play.ask_now(pop_request(1, 600_000)))
    append = play.store.append
    play.store.append = lambda sends, *how: append(sends[:1], *how)  # type: ignore[method-assign]
    assert play.ask_now(change_request(one, 1_000)).code == 0
    play.crash()
    durably(play, 3_000)  # the new lease ends, and nothing in the log is about it but its handled record
    (again,) = popped(play.ask_now(pop_request(1, 60_000)))
    assert again.topic != TOPIC
    assert play.ask_now(ack_request(again)).ext["gantryVerdict"] == "open"
    play.offsets.file.save_now()
    play.kill()
    assert play.pops.service.book.open == 0
    assert play.ask_now(ack_request(one)).ext["gantryVerdict"] != "open"


def test_a_head_that_cannot_become_a_dead_letter_now_is_not_passed() -> None:
    play = OrderPlay(times_max=0)
    for body in (b"m0", b"m1"):
        play.message(body)
    assert [one.body for one in play.taken(1)] == [b"m0"]
    play.clock.advance(INVISIBLE_MS)
    gate = play.parts.service.context.gate
    gate.shut("full", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no room"))
    assert play.taken(expType="TAG", exp="none of them has it") == []
    assert play.offsets.query(GROUP, TOPIC, 0) == 0
    gate.reopen("full")
    assert [one.body for one in play.taken()] == [b"m1"]
    assert play.bodies(DLQ) == [b"m0"]


def test_what_a_newer_lease_took_after_a_reset_stays_taken_when_only_the_older_one_is_left() -> None:
    play = sent(3)
    older = popped(play.ask_now(pop_request(3, 600_000)))
    play.offsets.reset(GROUP, TOPIC, 0, 0, marks=False)
    newer = popped(play.ask_now(pop_request(3, 1_000)))
    assert not play.ask_now(batch_ack_request(newer)).body
    durably(play, 3_000)  # the newer lease is handled
    play.offsets.file.save_now()
    play.kill()
    assert play.pops.service.book.open == 0
    for one in older:
        assert play.ask_now(ack_request(one)).ext["gantryVerdict"] != "open"


def test_the_first_handle_of_a_changed_message_is_stale_when_the_newer_one_has_ended() -> None:
    play = sent(2)
    first, other = popped(play.ask_now(pop_request(2, 600_000)))
    assert play.ask_now(change_request(first, 1_000)).code == 0
    assert play.ask_now(ack_request(other)).ext["gantryVerdict"] == "open"
    durably(play, 3_000)  # the changed message is in the retry topic
    for _ in range(2):
        assert play.ask_now(ack_request(first)).ext["gantryVerdict"] == "stale"
        assert play.ask_now(ack_request(other)).ext["gantryVerdict"] == "done"
        play.offsets.file.save_now()
        play.kill()
