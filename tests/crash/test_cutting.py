"""Cutting the log after a power cut: one play for each rule that the random lives showed to be needed."""

from __future__ import annotations

import copy
import random

from gantry.store.settings import Flush
from testkit.ledger import LogLedger
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.simpages import SECTOR_BYTES
from testkit.storeplay import ROOT, StorePlay, inspect, lives_on, read_log, revived

_SEGMENT_BYTES = 8192
_DICE = 40


def _play() -> StorePlay:
    """An open ASYNC_FLUSH store with something durable in it; what is appended from now on is not synced."""
    play = StorePlay(SimDisk(), LogLedger(), Flush.ASYNC)
    play.open()
    play.append(2, 300)
    play.close()
    play.open()
    return play


def _segment(log_offset: int) -> str:
    return f"{ROOT}/commitlog/{log_offset - log_offset % _SEGMENT_BYTES:020d}"


def test_an_old_record_never_comes_back_behind_newer_ones() -> None:
    play = _play()
    for _ in range(4):
        play.append(1, 900)
    # The page cache is written back, but for the first of the four records.
    first = read_log(play.disk, _SEGMENT_BYTES).entries[-4]
    play.ledger.safe = len(play.ledger.known) - 4
    play.disk.damage(_segment(0), 0, play.disk.read(_segment(0)))
    play.disk.damage(_segment(0), first.log_offset, bytes(first.size))
    for seed in range(_DICE):
        after = revived(play, play.disk.crash(), copy.deepcopy(play.ledger))
        inspect(after)
        # One record of the same size where the first of the four stood: what follows must not be the other three.
        after.append(1, 900)
        lives_on(revived(after, after.disk.crash(random.Random(seed)), after.ledger), random.Random(seed))


def test_a_record_whose_last_sector_was_never_written_is_cut() -> None:
    cuts = 0
    for body_bytes in range(12, 12 + SECTOR_BYTES, 7):
        play = _play()
        play.append(1, body_bytes)
        last = read_log(play.disk, _SEGMENT_BYTES).entries[-1]
        end = last.log_offset + last.size
        play.ledger.safe = len(play.ledger.known) - 1
        torn = max(end - 1 - (end - 1) % SECTOR_BYTES, last.log_offset)
        play.disk.damage(_segment(0), torn, bytes(end - torn))
        after = revived(play, play.disk.restart(), play.ledger)
        try:
            lives_on(after, random.Random(body_bytes))
        except BaseException as error:
            error.add_note(f"the last {end - torn} bytes of the record were never written")
            raise
        cuts += torn > last.log_offset
    assert cuts > 30


def test_a_record_whose_write_ended_in_its_properties_is_cut() -> None:
    """A short write, then an error: the process ends, and the next one finds a body with a good checksum."""
    for missing in range(1, 24):
        play = _play()
        play.append(1, 40)
        last = read_log(play.disk, _SEGMENT_BYTES).entries[-1]
        assert len(last.properties) > missing
        end = last.log_offset + last.size
        play.ledger.safe = len(play.ledger.known) - 1
        play.disk.damage(_segment(0), end - missing, bytes(missing))
        after = revived(play, play.disk.restart(), play.ledger)
        assert after.open().written.offset == last.log_offset, f"the last {missing} bytes were never written"
        after.close()
        lives_on(after, random.Random(missing))


def test_what_is_not_durable_in_the_log_is_in_no_queue_file_and_not_in_the_recovery_file() -> None:
    play = StorePlay(SimDisk(), LogLedger(), Flush.ASYNC, stepped=True)
    store = play.open()
    for _ in range(3):
        play.append(4, 1500)
    play.clock.advance(800)
    store.tick(play.clock.now_ms())
    play.step(10)
    flushed = store.flushed.offset
    play.append(3, 300)
    play.clock.advance(250)
    store.tick(play.clock.now_ms())
    play.step(10)
    assert 0 < flushed == store.flushed.offset < store.dispatched.offset, "a checkpoint between two flushes"
    for seed in range(_DICE):
        after = revived(play, play.disk.crash(random.Random(seed) if seed else None), copy.deepcopy(play.ledger))
        lives_on(after, random.Random(seed))


def test_removing_several_segments_never_leaves_a_gap() -> None:
    play = _play()
    for _ in range(6):
        play.append(4, 1500)
    view = read_log(play.disk, _SEGMENT_BYTES)
    assert view.ends[-1] > 4 * _SEGMENT_BYTES
    # Of all that only the names of the segments survived.
    crashed = play.disk.crash()
    assert len([path for path in crashed.files() if path.startswith(f"{ROOT}/commitlog/")]) > 4
    at, cut = 0, True
    while cut:
        at += 1
        for seed in range(6):
            second = revived(play, crashed.crash(), copy.deepcopy(play.ledger))
            second.disk.faults = Faults(power_cut_at=at)
            try:
                inspect(second)
                cut = False
            except PowerCut:
                pass
            third = revived(second, second.disk.crash(random.Random(seed)), second.ledger)
            try:
                lives_on(third, random.Random(seed))
            except BaseException as error:
                error.add_note(f"recovery cut at {at}, dice {seed}")
                raise
