"""RocketMQ's broker accepts 512 zero bytes in a row in properties.  What becomes of such a record in a folder that it
left: its delivery, commit, redelivery and copies survive a crash, and so does all that was acknowledged behind them.
"""

from __future__ import annotations

import random

import pytest

from gantry.leaves import frames, properties, records, zerosectors
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.store.settings import Flush
from gantry.transaction.checker import CheckPolicy
from testkit.delayplay import TOPIC as DELAYED
from testkit.delayplay import DelayPlay
from testkit.foreignrecords import append_foreign
from testkit.sendbackplay import GROUP, HOST, SendBackPlay
from testkit.transactionplay import COMMIT, TOPIC, Half, TransactionPlay
from testkit.transactionplay import GROUP as PRODUCERS

ZEROS = b"picture\x01" + bytes(1200) + b"\x02"
ENDS_OPEN = b"picture\x01x\0"


def foreign(topic: str, text: bytes, now_ms: int, **pairs: str) -> frames.Send:
    said = properties.pack({"UNIQ_KEY": "old", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"} | pairs)
    return frames.Send(topic=topic, body=b"old", properties=said + text, born_ms=now_ms, born_host=HOST)


def delayed(text: bytes, ahead_ms: int = 2000) -> DelayPlay:
    """A folder with a timer message, durable."""
    play = DelayPlay()
    play.send(b"makes the topic")
    due_ms = play.clock.now_ms() + ahead_ms
    pairs = {"REAL_TOPIC": DELAYED, "REAL_QID": "0", "TIMER_OUT_MS": str(due_ms)}
    append_foreign(play.store, [foreign(names.TIMER_TOPIC, text, play.clock.now_ms(), **pairs)])
    play.reopen()
    return play


@pytest.mark.parametrize("text", [ZEROS, ENDS_OPEN])
def test_a_delayed_message_is_delivered_once_and_what_follows_survives_a_kill(text: bytes) -> None:
    play = delayed(text)
    play.pass_ms(3000)
    assert play.send(b"acknowledged").code == 0
    play.kill()
    play.pass_ms(3000)
    assert play.visible() == [b"makes the topic", b"old", b"acknowledged"]
    (old,) = [record for record in play.records() if record.body == b"old"]
    assert text.rstrip(b"\x02") in old.properties


def test_a_copy_that_is_carried_on_survives_a_kill_and_is_delivered_once() -> None:
    play = delayed(ZEROS, 3_600_000)
    play.carry_on()
    assert play.service.counts.carried == 1
    assert play.send(b"acknowledged").code == 0
    play.kill()
    play.clock.advance(3_600_000)
    play.pass_ms(3000)
    assert sorted(play.visible()) == [b"acknowledged", b"makes the topic", b"old"]


def test_the_first_record_of_a_log_is_delivered_once_over_a_kill() -> None:
    play = DelayPlay()
    due_ms = play.clock.now_ms() + 2000
    pairs = {"REAL_TOPIC": DELAYED, "REAL_QID": "0", "TIMER_OUT_MS": str(due_ms)}
    append_foreign(play.store, [foreign(names.TIMER_TOPIC, ZEROS, play.clock.now_ms(), **pairs)])
    play.reopen()
    play.clock.advance(2100)
    play.deliver()
    play.kill()
    play.pass_ms(1000)
    assert play.visible() == [b"old"]


@pytest.mark.parametrize("text", [ZEROS, ENDS_OPEN])
def test_a_committed_half_and_what_follows_survive_a_kill(text: bytes) -> None:
    play = TransactionPlay(rules=CheckPolicy())
    play.topics.put(TopicConfig(TOPIC, 4, 4))
    pairs = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    half = foreign(names.HALF_TOPIC, text, play.clock.now_ms(), **pairs)
    append_foreign(play.store, [half])
    play.reopen()
    assert play.end(Half(0, half.queue_offset, half.log_offset, "old"), COMMIT) == 0
    assert play.half(key="later").code == 0
    play.kill()
    assert [body for body, _ in play.visible()] == [b"old"]
    assert len(play.book.open) == 1


def test_a_half_that_is_put_back_and_what_follows_survive_a_kill() -> None:
    play = TransactionPlay(rules=CheckPolicy())
    play.topics.put(TopicConfig(TOPIC, 4, 4))
    pairs = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    append_foreign(play.store, [foreign(names.HALF_TOPIC, ZEROS, play.clock.now_ms(), **pairs)])
    play.reopen()
    (half,) = play.book.open.values()
    record = play.store.reader.record_at(half.log_offset)
    assert record is not None and play.settling.put_back(half.root, record, 0, half.since_ms) is None
    assert play.half(key="later").code == 0
    play.kill()
    assert [one.root for one in play.book.open.values()] == [0, 2]


@pytest.mark.parametrize("is_run", [False, True])
def test_a_message_that_is_sent_back_and_what_follows_survive_a_power_cut(is_run: bool) -> None:
    play = SendBackPlay(Flush.SYNC)
    append_foreign(play.store, [foreign("T", ZEROS, play.clock.now_ms())])
    play.flush()
    play.store.close()
    play.open()
    (record,) = play.records("T")
    if is_run:
        assert play.run({"offset": record.log_offset}) == []
    else:
        play.send_back(record)
    play.flush()
    play.message(b"acknowledged")
    play.crash(random.Random(1))
    (copy,) = play.records(names.retry_topic(GROUP))
    assert ZEROS in copy.properties and copy.body == b"old"
    assert [one.body for one in play.records("T")] == [b"old", b"acknowledged"]


def test_a_record_without_room_for_a_checksum_leaves_out_what_brokers_say_of_themselves() -> None:
    text = foreign("T", ZEROS, 1).properties
    text += b"p\x01" + b"x" * (PROPERTIES_BYTES_MAX - len(text) - 3) + b"\x02"
    made = zerosectors.guarded(text, PROPERTIES_BYTES_MAX)
    assert len(made) <= PROPERTIES_BYTES_MAX and zerosectors.is_whole(made) and ZEROS in made
    assert b"MSG_REGION" not in made
    records.run_bytes([frames.Send(topic="T", properties=made, born_host=HOST)])
