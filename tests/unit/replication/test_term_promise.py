"""Promises and incarnations: what a start may believe of the process before it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gantry.errors import StoreError
from gantry.replication import term_promise as kept
from gantry.replication.members import LOSSES_MAX, Member, disk_of
from gantry.replication.term_promise import Beginning, Ending, TermPromise
from gantry.store import filenames
from testkit.simdisk import PowerCut, SimDisk

START = Beginning(boot_id="boot-1", is_sync_flush=False, log_end=500, checkpoint=400)
NEXT_BOOT = START._replace(boot_id="boot-2")


def losses(first: Beginning, ending: Ending, second: Beginning) -> int:
    return TermPromise(3).begin(first).end(ending).begin(second).losses


@pytest.mark.parametrize(
    ("was_sync", "ending", "boot", "lost"),
    [
        (False, Ending.UNKNOWN, "boot-2", 1),
        (False, Ending.UNKNOWN, "boot-1", 0),  # killed: the page cache is still there
        (False, Ending.UNKNOWN, "", 1),
        (False, Ending.CLEAN, "boot-2", 0),
        (True, Ending.UNKNOWN, "boot-2", 0),
        (True, Ending.SYNC_FAILED, "boot-1", 1),
        (False, Ending.SYNC_FAILED, "boot-1", 1),
    ],
)
def test_a_loss_is_counted_when_something_acknowledged_may_be_gone(
    was_sync: bool, ending: Ending, boot: str, lost: int
) -> None:
    assert losses(START._replace(is_sync_flush=was_sync), ending, START._replace(boot_id=boot)) == lost


def test_the_policy_that_counts_is_the_one_that_the_process_ran_under() -> None:
    assert losses(START, Ending.UNKNOWN, NEXT_BOOT._replace(is_sync_flush=True)) == 1
    assert losses(START._replace(is_sync_flush=True), Ending.UNKNOWN, NEXT_BOOT) == 0


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_log_shorter_than_its_checkpoint_is_a_loss_however_it_came_about(is_sync: bool) -> None:
    first = START._replace(is_sync_flush=is_sync)
    assert losses(first, Ending.CLEAN, first._replace(log_end=399)) == 1
    assert losses(first, Ending.CLEAN, first._replace(log_end=400)) == 0


def test_a_start_that_dies_is_followed_by_another_one() -> None:
    assert TermPromise(0).begin(START).begin(NEXT_BOOT).begin(NEXT_BOOT).losses == 1


def test_no_number_means_two_disks() -> None:
    assert TermPromise(2, losses=LOSSES_MAX).member(1).incarnation < TermPromise(3).member(1).incarnation
    assert TermPromise(3, losses=5).member(1) == Member(1, 3 * 4096 + 5)
    assert disk_of(3 * 4096 + 5) == 3


def test_a_disk_that_lost_too_often_is_not_taken_any_further() -> None:
    with pytest.raises(ValueError, match="cloned again"):
        TermPromise(0, losses=LOSSES_MAX).begin(START).begin(NEXT_BOOT)


def test_a_promise_never_falls() -> None:
    assert TermPromise(0).promising(4).promising(4).promising(7).promise == 7
    with pytest.raises(ValueError, match="below the promised 7"):
        TermPromise(0, promise=7).promising(6)


TERM_PROMISE = TermPromise(2, 1, 9, "boot-1", False, Ending.UNKNOWN)


def test_promises_are_read_as_they_were_written() -> None:
    disk = SimDisk()
    assert kept.load(disk, "/s") is None
    for term_promise in (TERM_PROMISE, replace(TERM_PROMISE, ending=Ending.CLEAN)):
        kept.save(disk, "/s", term_promise)
        assert kept.load(disk, "/s") == term_promise


def test_a_promise_that_was_saved_survives_every_power_cut_and_a_half_saved_one_is_whole_or_not_there() -> None:
    for cut_at in range(1, 20):
        disk = SimDisk(seed=cut_at)
        kept.save(disk, "/s", TERM_PROMISE)
        disk.faults.power_cut_at = disk.faults.seen + cut_at
        done = False
        try:
            kept.save(disk, "/s", TERM_PROMISE.promising(10))
            done = True
        except PowerCut:
            pass
        for seed in range(20):
            found = kept.load(disk.crash(Random(seed)), "/s")
            assert found is not None and found.promise in ((10,) if done else (9, 10))


@pytest.mark.parametrize("contents", [b"", b"{}", b'{"promise": 1}', b"\xff", b"[]", b'{"disk": -1, "losses": 0}'])
def test_damaged_promises_are_never_replaced_by_older_ones(contents: bytes) -> None:
    disk = SimDisk()
    kept.save(disk, "/s", TERM_PROMISE)
    kept.save(disk, "/s", TERM_PROMISE.promising(10))
    disk.shorten(filenames.term_promise("/s"), 0)
    disk.open(filenames.term_promise("/s"), create=False).pwrite(contents, 0)
    with pytest.raises(StoreError, match="cloned again"):
        kept.load(disk, "/s")
