"""Which member a reader is sent to, and what it is never told."""

from __future__ import annotations

from gantry.consume.slave_reads import SlaveReads
from gantry.store.fetched import Fetched, FetchStatus
from gantry.wire.codes import ResponseCode

MOVED, NOT_FOUND, AGAIN = (
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)
AHEAD, SMALL, ONE = (
    FetchStatus.OFFSET_OVERFLOW_BADLY,
    FetchStatus.OFFSET_TOO_SMALL,
    FetchStatus.OFFSET_OVERFLOW_ONE,
)


def slave_reads(broker_id: int = 0, reader: int = 1, is_alone: bool = False, head: int = 10) -> SlaveReads:
    return SlaveReads(broker_id, 1000, lambda: reader, lambda: is_alone, lambda topic, queue_id: head)


def answered(one: SlaveReads, code: int, status: FetchStatus, offset: int) -> tuple[int, int]:
    fetched = Fetched(status, 7, 0, 7)
    return one.code("t", 0, offset, code, fetched), fetched.next_offset


def test_who_is_far_behind_is_sent_to_a_slave_and_back() -> None:
    assert slave_reads().suggested(1001) == 1 and slave_reads().suggested(1000) == 0
    assert slave_reads(reader=0).suggested(1001) == 0
    assert slave_reads(broker_id=2).suggested(1001) == 2 and slave_reads(broker_id=2).suggested(5) == 0


def test_a_slave_never_throws_a_reader_back() -> None:
    assert answered(slave_reads(1), MOVED, AHEAD, 9) == (AGAIN, 9)
    assert answered(slave_reads(1), MOVED, FetchStatus.NO_MATCHED_LOGIC_QUEUE, 9) == (AGAIN, 9)
    assert answered(slave_reads(1), MOVED, SMALL, 0) == (AGAIN, 7)


def test_a_slave_sends_who_has_read_everything_back_to_the_master_if_there_is_one() -> None:
    assert answered(slave_reads(1), NOT_FOUND, ONE, 7)[0] == AGAIN
    assert answered(slave_reads(1, is_alone=True), NOT_FOUND, ONE, 7)[0] == NOT_FOUND
    assert not slave_reads(1).may_hold("t", 0, 7, NOT_FOUND, ONE)
    assert slave_reads(1, is_alone=True).may_hold("t", 0, 7, NOT_FOUND, ONE)
    assert slave_reads(1, is_alone=True).may_hold("t", 0, 9, MOVED, AHEAD)


def test_a_master_keeps_readers_of_what_is_not_confirmed_yet_where_they_are() -> None:
    assert slave_reads(head=10).may_hold("t", 0, 9, MOVED, AHEAD)
    assert answered(slave_reads(head=10), MOVED, AHEAD, 9) == (AGAIN, 9)
    assert not slave_reads(head=10).may_hold("t", 0, 11, MOVED, AHEAD)
    assert answered(slave_reads(head=10), MOVED, AHEAD, 11) == (MOVED, 7)
    assert answered(slave_reads(), MOVED, SMALL, 0) == (MOVED, 7)
    assert slave_reads().may_hold("t", 0, 7, NOT_FOUND, ONE)
