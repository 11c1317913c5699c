"""The n-th operation fails, for n = 1, 2, 3 ... as SQLite does it.

EIO: whatever the store does about it, it may not go on as if nothing had happened to the log; the process ends, the
page cache stays, with pages that the failed sync left "clean" and that no later sync will write.  The next start has to
cope with that, also when the power goes right after it.

ENOSPC: nothing dies.  The store says DiskFullError, goes on reading, and goes on writing when there is room again.
"""

from __future__ import annotations

import copy
import errno
import random

import pytest

from gantry.errors import DiskFullError, StoreError
from gantry.store.settings import Flush
from testkit.ledger import LogLedger
from testkit.simdisk import Faults, SimDisk
from testkit.storeplay import Step, StorePlay, check, inspect, lives_on, perform, revived

_LIFE: list[Step] = [
    ("open", 0, 0),
    ("append", 1, 12),
    ("append", 3, 200),
    ("tick", 4, 0),
    ("append", 4, 1500),
    ("together", 3, 1200),
    ("step", 2, 0),
    ("append", 2, 900),
    ("tick", 4, 0),
    ("append", 1, 40),
    ("reopen", 0, 0),
    ("append", 2, 700),
    ("tick", 4, 0),
    ("append", 2, 100),
    ("tick", 4, 0),
]


@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("flush", list(Flush))
def test_after_an_error_of_the_disk_the_next_start_has_all_that_was_durable(flush: Flush, stepped: bool) -> None:
    at, fired = 0, True
    while fired:
        at += 1
        play = StorePlay(SimDisk(seed=at), LogLedger(), flush, stepped)
        play.disk.faults = faults = Faults(fail_at=at, fail_errno=errno.EIO)
        _until_it_stops(play)
        fired = faults.fired
        try:
            _next_start(play, at)
        except BaseException as error:
            error.add_note(f"operation {at} failed ({faults.trace[min(at, len(faults.trace)) - 1]})")
            raise


def _until_it_stops(play: StorePlay) -> None:
    """Live until the store gives up; its process then ends without another word to the disk."""
    for step in _LIFE:
        try:
            perform(play, [step])
        except StoreError:
            return
        if play.store is not None and play.store.failed is not None:
            return


def _next_start(play: StorePlay, at: int) -> None:
    after = revived(play, play.disk.restart(), play.ledger)
    inspect(after)
    # The start has promised all that it shows; the power goes now.
    again = revived(after, after.disk.crash(random.Random(at)), copy.deepcopy(after.ledger))
    lives_on(again, random.Random(at))


@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("flush", list(Flush))
def test_a_full_disk_at_any_operation_kills_nothing_and_loses_nothing(flush: Flush, stepped: bool) -> None:
    at, fired = 0, True
    while fired:
        at += 1
        play = StorePlay(SimDisk(seed=at), LogLedger(), flush, stepped)
        play.disk.faults = faults = Faults(fail_at=at, fail_errno=errno.ENOSPC)
        try:
            _in_spite_of_a_full_disk(play)
        except BaseException as error:
            error.add_note(f"no room at operation {at} ({faults.trace[min(at, len(faults.trace)) - 1]})")
            raise
        fired = faults.fired


def _in_spite_of_a_full_disk(play: StorePlay) -> None:
    for step in _LIFE:
        for _ in range(3):
            try:
                perform(play, [step])
                break
            except DiskFullError:
                if play.store is None:
                    play.clock.advance(1100)
                else:
                    play.tick()
        else:
            raise AssertionError(f"{step} is refused although there is room again")
    assert play.store is not None
    play.close()
    play.disk.faults = Faults()
    lives_on(revived(play, play.disk, play.ledger), random.Random(1))


@pytest.mark.parametrize("how", ["the process dies", "the power goes"])
def test_a_refused_run_never_comes_back(how: str) -> None:
    for seed in range(30):
        play = StorePlay(SimDisk(), LogLedger(), Flush.SYNC)
        play.open()
        play.append(1, 300)
        play.disk.faults = Faults(fail_at=1, fail_errno=errno.ENOSPC, fail_kind="write")
        with pytest.raises(DiskFullError):
            play.append(4, 300)
        rng = random.Random(seed)
        disk = play.disk.restart() if how == "the process dies" else play.disk.crash(rng)
        lives_on(revived(play, disk, play.ledger), rng)


@pytest.mark.parametrize("stepped", [False, True], ids=["at-once", "stepped"])
@pytest.mark.parametrize("quota_kib", range(40, 160, 12))
def test_with_no_room_left_the_store_refuses_reads_on_and_recovers_by_itself(quota_kib: int, stepped: bool) -> None:
    play = StorePlay(SimDisk(quota_bytes=quota_kib * 1024), LogLedger(), Flush.SYNC, stepped)
    play.open()
    with pytest.raises(DiskFullError):
        for _ in range(200):
            play.append(3, 700)
            play.tick()
    assert play.store is not None and play.store.failed is None
    for _ in range(3):
        with pytest.raises(DiskFullError):
            for _ in range(20):
                play.append(2, 1500)
    check_reads(play)
    play.disk.quota_bytes += 400 * 1024
    play.tick()
    play.append(3, 1500)
    play.tick()
    check(play, play.store)
    play.close()
    lives_on(revived(play, play.disk, play.ledger), random.Random(quota_kib))


def check_reads(play: StorePlay) -> None:
    assert play.store is not None
    for (topic, queue_id), numbers in play.ledger.queues().items():
        if play.store.queue_range(topic, queue_id) is not None:
            assert play.store.reader.fetch(topic, queue_id, 0, 100, 1 << 20, None).buffers, (topic, queue_id, numbers)
