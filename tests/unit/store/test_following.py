"""A store that takes another one's records at the same offsets."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gantry.errors import CorruptRecordError, StoreError
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.store.store import Store
from testkit import storeplay
from testkit.ledger import LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.storeplay import TOPICS, StorePlay, read_log


def member(flush: Flush = Flush.SYNC) -> StoreSettings:
    return replace(storeplay.settings(flush), keeps_tail=True)


def follow(master: Store, slave: Store, bytes_max: int = 1500) -> None:
    """All that the master has."""
    while slave.written.offset < master.written.offset:
        start = slave.written.offset
        view, following = master.chunk(start, bytes_max)
        assert slave.append_raw(start, view) == following


def master_play(count: int = 40) -> StorePlay:
    play = StorePlay(SimDisk(), LogLedger())
    play.open()
    rng = random.Random(5)
    for _ in range(count):
        play.append(rng.randint(1, 4), rng.choice((10, 300, 900)))
    return play


def slave_on(disk: SimDisk) -> Store:
    return open_store(member(), disk, SimClock(), InlineBackground())


@pytest.mark.parametrize("bytes_max", [1, 700, 5000, 1 << 20])
def test_the_logs_are_equal_byte_for_byte_over_segments(bytes_max: int) -> None:
    play, disk = master_play(), SimDisk()
    assert play.store is not None
    slave = slave_on(disk)
    follow(play.store, slave, bytes_max)
    ours = {path: data for path, data in play.disk.files().items() if "/commitlog/" in path}
    theirs = {path: data for path, data in disk.files().items() if "/commitlog/" in path}
    assert len(ours) > 3 and ours == theirs


def test_nothing_is_shown_before_it_is_confirmed() -> None:
    play = master_play()
    assert play.store is not None
    slave = slave_on(SimDisk())
    follow(play.store, slave)
    assert slave.queue_range(TOPICS[0], 0) is None
    slave.confirmed.advance(slave.written.offset)
    for topic, queue_id in play.store.queues():
        assert slave.queue_range(topic, queue_id) == play.store.queue_range(topic, queue_id)


def test_a_start_shows_what_was_known_to_be_confirmed_and_keeps_the_rest() -> None:
    play, disk = master_play(), SimDisk()
    assert play.store is not None
    slave = slave_on(disk)
    follow(play.store, slave)
    middle = play.store.reader.entry(TOPICS[0], 0, 3)
    assert middle is not None
    slave.confirmed.advance(middle[0])
    slave.close()

    again = slave_on(disk)
    assert again.written.offset == play.store.written.offset
    assert again.confirmed.offset == again.dispatched.offset == middle[0]
    assert again.queue_range(TOPICS[0], 0) == (0, 3)
    for topic, queue_id in play.store.queues():
        assert again.next_queue_offset(topic, queue_id) == play.store.next_queue_offset(topic, queue_id)
    again.confirmed.advance(again.written.offset)
    for topic, queue_id in play.store.queues():
        assert again.queue_range(topic, queue_id) == play.store.queue_range(topic, queue_id)


def test_bytes_that_are_no_records_are_refused_and_change_nothing() -> None:
    play, disk = master_play(3), SimDisk()
    assert play.store is not None
    slave = slave_on(disk)
    view, _ = play.store.chunk(0, 1 << 20)
    # size, magic, log offset, body: what the framing and the checksum cover
    for at in (0, 5, 30, 88):
        hostile = bytearray(view)
        hostile[at] ^= 0x55
        with pytest.raises(CorruptRecordError):
            slave.append_raw(0, memoryview(hostile))
        assert slave.written.offset == 0
    with pytest.raises(CorruptRecordError):
        slave.append_raw(0, memoryview(bytes(view[:-1])))
    with pytest.raises(StoreError, match="the log ends at 0"):
        slave.append_raw(8, view)
    assert slave.append_raw(0, view) == len(view)
    assert read_log(disk, 8192).kept == read_log(play.disk, 8192).kept
