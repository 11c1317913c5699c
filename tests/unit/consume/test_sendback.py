"""Request 36: who may send what back, where it goes, and when the answer comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.errors import Refusal
from gantry.leaves import properties, records
from gantry.model import names
from gantry.model.subscription import GroupConfig
from gantry.model.topic import PERM_READ, TopicConfig
from gantry.store.settings import Flush
from gantry.wire.headers import HeaderError
from testkit.keyed import query
from testkit.sendbackplay import DLQ, GROUP, RETRY, SendBackPlay, said


def test_it_comes_again_in_the_retry_topic_after_the_delay_of_its_attempt() -> None:
    play = SendBackPlay()
    assert play.send_back(play.message()) == 0
    (first,) = play.records(RETRY)
    assert play.send_back(first) == 0
    second = play.records(RETRY)[1]
    assert play.levels == [3, 4]
    assert (second.reconsume_times, said(second)["RETRY_TOPIC"], said(second)["UNIQ_KEY"]) == (2, "T", "K1")
    assert said(second)["ORIGIN_MESSAGE_ID"] == said(first)["ORIGIN_MESSAGE_ID"]
    assert play.handler.counts.retried == {(GROUP, "T"): 2}


def test_the_consumer_may_choose_the_delay() -> None:
    play = SendBackPlay()
    assert play.send_back(play.message(), level=7) == 0
    assert play.levels == [7]


def test_after_the_group_s_attempts_it_is_a_dead_letter_that_can_be_read() -> None:
    play = SendBackPlay(group=GroupConfig(GROUP, retry_times_max=2))
    found = play.message()
    for _ in range(2):
        assert play.send_back(found) == 0
        found = play.records(RETRY)[-1]
    assert play.send_back(found) == 0
    (dead,) = play.records(DLQ)
    assert (dead.body, dead.reconsume_times, said(dead)["DLQ_ORIGIN_TOPIC"]) == (b"sour", 3, "T")
    assert len(play.records(RETRY)) == 2
    topic = play.topics.get(DLQ)
    assert topic is not None and (topic.perm, topic.read_queues, topic.write_queues) == (6, 1, 1)
    assert play.handler.counts.dead == {(GROUP, "T"): 1}


def test_the_consumer_s_number_of_attempts_counts_before_the_group_s_unless_it_is_an_old_client() -> None:
    play = SendBackPlay()
    assert play.send_back(play.message(), maxReconsumeTimes=0) == 0
    assert play.send_back(play.message(), maxReconsumeTimes=-1) == 0
    assert play.send_back(play.message(), maxReconsumeTimes=0, version=100) == 0
    assert (len(play.records(DLQ)), len(play.records(RETRY))) == (1, 2)


def test_the_consumer_may_give_it_up_at_once() -> None:
    play = SendBackPlay()
    assert play.send_back(play.message(), level=-1) == 0
    assert len(play.records(DLQ)) == 1 and play.levels == []


def test_a_group_s_retries_are_spread_over_its_retry_queues() -> None:
    play = SendBackPlay(group=GroupConfig(GROUP, retry_queues=3))
    for _ in range(6):
        assert play.send_back(play.message()) == 0
    assert sorted(record.queue_id for record in play.records(RETRY)) == [0, 0, 1, 1, 2, 2]


def test_a_group_without_retry_queues_lets_go_and_that_is_counted() -> None:
    play = SendBackPlay(group=GroupConfig(GROUP, retry_queues=0))
    assert play.send_back(play.message()) == 0
    assert play.records(RETRY) == [] == play.records(DLQ)
    assert play.handler.counts.dropped == {GROUP: 1}


def test_the_answer_comes_when_the_copy_is_confirmed() -> None:
    play = SendBackPlay(Flush.SYNC)
    found = play.message()
    assert play.send_back(found) == -1
    assert play.records(RETRY) == []
    play.flush()
    assert [reply.code for reply in play.connection.take()] == [0]
    assert len(play.records(RETRY)) == 1


def test_a_oneway_request_is_carried_out_and_not_answered() -> None:
    play = SendBackPlay()
    found = play.message()
    assert play.ask(offset=found.log_offset, group=GROUP, delayLevel=0, is_oneway=True) is None
    assert len(play.records(RETRY)) == 1


def test_what_is_no_message_cannot_be_sent_back() -> None:
    play = SendBackPlay()
    inner = play.message(b"inner")
    faked = bytes(play.store.reader.fetch("T", 0, 0, 1, 1 << 20, None).buffers[0])
    outer = play.message(b"." * 100 + faked)
    inside = outer.log_offset + bytes(play.store.reader.fetch("T", 0, 1, 1, 1 << 20, None).buffers[0]).index(faked)
    end = play.store.written.offset
    for offset in (-1, -(1 << 63), inner.log_offset + 1, outer.log_offset - 4, inside, end, end + 4096, (1 << 63) - 1):
        answer = play.ask(offset=offset, group=GROUP, delayLevel=0)
        assert answer is not None and answer.code == 1, offset
        assert answer.remark.startswith(f"look message by offset failed, {offset};")
    assert play.topics.get(RETRY) is None
    assert play.handler.counts.refused == {"no such message": 8}


@pytest.mark.parametrize("group", ["nobody", "", "g ", "%RETRY%g"])
def test_a_group_that_is_not_there_is_refused_and_not_made(group: str) -> None:
    play = SendBackPlay()
    assert play.send_back(play.message(), group=group) == 26
    assert play.groups.get(group) is None


def test_a_group_that_was_dropped_is_refused() -> None:
    play = SendBackPlay()
    found = play.message()
    play.groups.delete(GROUP)
    assert play.send_back(found) == 26


@pytest.mark.parametrize(
    ("topic", "claimed", "is_good"),
    [
        ("T", "T", True),
        ("T", "", True),
        ("T", "Other", False),
        (RETRY, "T", True),
        (RETRY, RETRY, True),
        (RETRY, "Other", False),
        ("%RETRY%h", "", False),
        ("%DLQ%h", "%DLQ%h", True),
        (names.HALF_TOPIC, "", False),
        (names.OP_HALF_TOPIC, names.OP_HALF_TOPIC, False),
        (names.SCHEDULE_TOPIC, "", False),
        (names.TIMER_TOPIC, "", False),
    ],
)
def test_a_record_that_the_group_cannot_have_been_given_is_refused(topic: str, claimed: str, is_good: bool) -> None:
    play = SendBackPlay()
    found = play.message(topic=topic, RETRY_TOPIC="T")
    assert play.send_back(found, originTopic=claimed) == (0 if is_good else 1)
    assert play.handler.counts.refused == ({} if is_good else {"wrong message": 1})


def _no_write(play: SendBackPlay) -> None:
    play.admission.set_writable(False)


def _no_retry_topic(play: SendBackPlay) -> None:
    play.topics.put(TopicConfig(RETRY, 1, 1, PERM_READ))


def _shut(play: SendBackPlay) -> None:
    play.gate.shut("full", Refusal(14, "no room"))


def _no_delay(play: SendBackPlay) -> None:
    play.refuses_delay = Refusal(13, "no delay")


@pytest.mark.parametrize(("change", "code"), [(_no_write, 16), (_no_retry_topic, 16), (_shut, 14), (_no_delay, 13)])
def test_what_keeps_a_copy_out_of_the_log_is_said_and_nothing_is_written(
    change: Callable[[SendBackPlay], None], code: int
) -> None:
    play = SendBackPlay()
    found = play.message()
    change(play)
    before = play.store.written.offset
    assert play.send_back(found) == code
    assert play.store.written.offset == before
    assert play.handler.counts.retried == {}


def test_a_group_that_may_not_read_the_topic_cannot_get_its_messages_this_way() -> None:
    play = SendBackPlay()
    play.groups._forbidden[GROUP] = {"T": PERM_READ}
    assert play.send_back(play.message()) == 16


def test_properties_that_leave_no_room_are_refused() -> None:
    play = SendBackPlay()
    found = play.message(padding="x" * 32_300)
    assert play.send_back(found) == 13
    assert play.records(RETRY) == []


@pytest.mark.parametrize("ext", [{}, {"offset": "x", "group": "g", "delayLevel": "0"}, {"offset": "1", "group": "g"}])
def test_a_header_that_lacks_something_is_told_what(ext: dict[str, str]) -> None:
    with pytest.raises(HeaderError, match=r"offset|delayLevel"):
        SendBackPlay().ask(**ext)


@pytest.mark.parametrize("size", [10, 9_000])
def test_a_message_far_behind_the_end_is_brought_in_before_it_is_copied(size: int) -> None:
    play = SendBackPlay(Flush.SYNC, warm_bytes=1)
    found = play.message(bytes(size))
    play.message(b"behind")
    assert play.send_back(found) == -1
    assert play.records(RETRY) == []
    play.flush()
    assert [reply.code for reply in play.connection.take()] == [0]
    assert [record.body for record in play.records(RETRY)] == [bytes(size)]


def test_far_behind_the_end_nothing_can_be_forged_either() -> None:
    play = SendBackPlay(Flush.SYNC, warm_bytes=1)
    found = play.message()
    play.message(bytes(9_000))
    assert play.send_back(found, group="nobody") == -1
    play.ask(offset=found.log_offset + 3, group=GROUP, delayLevel=0)
    play.flush()
    assert sorted(reply.code for reply in play.connection.take()) == [1, 26]


def test_a_copy_of_a_committed_message_is_no_commit_of_the_half_at_the_log_s_beginning() -> None:
    play = SendBackPlay()
    found = play.message(sys_flag="8", prepared_offset="700", TRAN_MSG="true")
    assert play.send_back(found) == 0
    (copy,) = play.records(RETRY)
    assert (copy.sys_flag & 0xC, copy.prepared_offset) == (0, 0)


def test_the_key_finds_every_copy() -> None:
    play = SendBackPlay()
    found = play.message()
    assert play.send_back(found) == 0
    (hit,) = query(play.store.reader, RETRY, said(found)["UNIQ_KEY"], 9, 0, 1 << 60)
    assert properties.parse(records.view(hit, 0, len(hit)).properties)["UNIQ_KEY"] == said(found)["UNIQ_KEY"]
