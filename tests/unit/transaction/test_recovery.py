"""Reading back queues that RocketMQ's broker wrote: ops without outcomes, 4.x and 5.x bodies, copies without a root."""

from __future__ import annotations

import pytest

from gantry.leaves import frames, properties, records
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.store.settings import Flush
from gantry.transaction import half as halves
from gantry.transaction.oplog import TransactionState
from gantry.wire.codes import RequestCode
from testkit.memory_state import MemoryState
from testkit.transactionplay import COMMIT, HOST, ROLLBACK, Half, TransactionPlay


def foreign_op(play: TransactionPlay, body: bytes) -> None:
    """An op as RocketMQ writes it; the running book does not see outcomes in it."""
    text = properties.pack({"TAGS": "d"})
    send = frames.Send(topic=names.OP_HALF_TOPIC, properties=text, body=body, born_host=HOST, tags_code=ord("d"))
    play.store.append([send])


def foreign_message(play: TransactionPlay, half: Half) -> None:
    """The real message that RocketMQ puts for a commit, without an op."""
    place = play.book.open[half.queue_offset]
    message = play.store.reader.message(place.log_offset, place.size)
    assert message is not None
    halves.make_real(message, place.topic, 0, place.log_offset)
    play.store.append([message])


def test_ops_of_rocketmq_settle_and_the_real_message_tells_how() -> None:
    play = TransactionPlay()
    made = [play.half(key=f"k{number}") for number in range(6)]
    foreign_message(play, made[0])
    foreign_message(play, made[2])
    foreign_op(play, b"0,1,")
    foreign_op(play, b"2")
    foreign_op(play, b"3,")
    assert sorted(half.root for half in play.book.open.values()) == [4, 5]
    play.states[2] = MemoryState()
    play.store.close()
    play.open()
    assert sorted(half.root for half in play.book.open.values()) == [4, 5]
    for number, outcome in enumerate((COMMIT, ROLLBACK, COMMIT, ROLLBACK)):
        other = ROLLBACK if outcome == COMMIT else COMMIT
        assert play.end(made[number], outcome) == 0
        assert play.end(made[number], other) in (200, 201)
    assert play.end(made[4], COMMIT) == 0
    assert [key for _, key in play.visible()] == ["k0", "k2", "k4"]
    play.reopen()
    assert [play.end(made[number], COMMIT) for number in (0, 2, 4)] == [0, 0, 0]
    assert [play.end(made[number], COMMIT) for number in (1, 3)] == [1, 1], "ended, and nobody knows how"
    assert [key for _, key in play.visible()] == ["k0", "k2", "k4"]


@pytest.mark.parametrize("flush", list(Flush))
def test_a_half_that_rocketmq_gave_up_is_checked_again_when_it_is_rearmed(flush: Flush) -> None:
    play = TransactionPlay(flush)
    half = play.half(key="k")
    play.flush()
    assert play.end(half, ROLLBACK) in (0, -1)  # -1: not confirmed yet
    play.flush()
    record = play.half_record(half.queue_offset)
    assert record is not None
    play.topics.ensure(TopicConfig(names.CHECK_MAX_TIME_TOPIC, read_queues=1, write_queues=1))
    copy = frames.Send(
        topic=names.CHECK_MAX_TIME_TOPIC, properties=record.properties, body=record.body, born_host=HOST
    )
    play.store.append([copy])
    play.flush()
    message_id = records.offset_message_id(HOST, copy.log_offset)
    play.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=names.CHECK_MAX_TIME_TOPIC, msgId=message_id)
    play.flush()
    (opened,) = play.book.open.values()
    play.join()
    assert len(play.run_pass(3_600_000)) == 1 and not play.settling.is_moving(opened.root)


def test_a_message_whose_op_rocketmq_had_not_written_yet_has_ended() -> None:
    play = TransactionPlay()
    half = play.half(key="k")
    foreign_message(play, half)
    play.reopen()
    assert not play.book.open and play.service.counts.repaired == 1
    assert play.end(half, COMMIT) == 0 and len(play.visible()) == 1


def test_a_copy_of_rocketmq_s_is_a_transaction_of_its_own_and_its_original_is_not_settled_again() -> None:
    play = TransactionPlay()
    half = play.half(key="k")
    record = play.half_record(half.queue_offset)
    assert record is not None
    text = properties.add(record.properties, b"TRANSACTION_CHECK_TIMES", b"3")
    copy = halves.put_back(record, 0, 0, 0)
    copy.properties = text
    play.store.append([copy])
    play.states[2].save(
        {
            "offsetTable": {
                f"{names.HALF_TOPIC}@{names.TRANSACTION_GROUP}": {"0": 1},
                f"{names.OP_HALF_TOPIC}@{names.TRANSACTION_GROUP}": {"0": 0},
            }
        }
    )
    play.topics.file.save_now()
    play.store.close()
    play.open()
    (open_one,) = play.book.open.values()
    assert (open_one.root, open_one.checks) == (1, 3)
    assert play.end(half, COMMIT) == 1, "the broker that put it back did not say where it stands"
    assert play.end(Half(0, copy.queue_offset, copy.log_offset, "k"), COMMIT) == 0
    assert len(play.visible()) == 1


def test_an_op_position_that_is_newer_than_its_half_position_passes_no_end_of_a_half_that_is_read_again() -> None:
    play = TransactionPlay()
    early = play.half(key="early")
    for number in range(3):
        assert play.end(play.half(key=f"before{number}"), COMMIT) == 0
    assert play.end(early, COMMIT) == 0
    first, others = play.half(key="first"), [play.half(key=f"k{number}") for number in range(3)]
    waits = play.half(key="waits")
    for half in (*others, first):
        assert play.end(half, COMMIT) == 0
    # What is saved in slices, and sent to slaves change by change, may be of two moments.
    half_at, op_at = first.queue_offset, play.book.op_offset
    assert op_at == play.book.op_end == 8 and play.book.half_offset == waits.queue_offset
    saved = {names.HALF_TOPIC: half_at, names.OP_HALF_TOPIC: op_at}
    table = {f"{topic}@{names.TRANSACTION_GROUP}": {"0": offset} for topic, offset in saved.items()}
    play.states[2].save({"offsetTable": table})
    play.kill()
    assert [half.root for half in play.book.open.values()] == [waits.queue_offset]
    assert play.book.half_offset == waits.queue_offset and play.book.op_offset == op_at
    play.join()
    for question in play.run_pass(7000):
        assert play.end(question.half, COMMIT, is_check=True) == 0
    keys = [key for _, key in play.visible()]
    assert len(keys) == len(set(keys)) == 9 and keys[-1] == "waits"


def test_saved_positions_behind_the_queues_ends_are_cut_to_them() -> None:
    play = TransactionPlay()
    play.half(key="k")
    play.states[2].save({"offsetTable": {f"{names.HALF_TOPIC}@{names.TRANSACTION_GROUP}": {"0": 99}}})
    play.store.close()
    play.open()
    assert play.book.half_offset == 1
    fresh = play.half(key="next")
    assert play.book.outcome(fresh.queue_offset) is TransactionState.OPEN


def test_positions_are_saved_when_the_log_up_to_them_is_on_the_disk() -> None:
    play = TransactionPlay(Flush.ASYNC)
    half = play.half()
    assert play.end(half, COMMIT) == 0
    for _ in range(3):
        play.tick()
    place = names.TRANSACTION_GROUP, names.HALF_TOPIC, 0
    assert play.offsets.query(*place) == -1, "a power cut may still take the end"
    play.store._flush.finish()
    play.flush()
    play.tick()
    assert play.offsets.query(*place) == 1
