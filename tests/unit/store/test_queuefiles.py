"""Queue files on the disk: many are synced together, and what that promises."""

from __future__ import annotations

import errno
import random

import pytest

from gantry.errors import SyncFailedError
from gantry.leaves import queues
from gantry.store.queuefiles import QueueFiles, Tail
from testkit.simdisk import Faults, PowerCut, SimDisk

_ROOT = "/store/consumequeue"


def _files(disk: SimDisk, together_min: int = 2) -> QueueFiles:
    disk.make_folders(_ROOT)
    return QueueFiles(disk, 8, together_min)


def _tails(count: int, first: int = 0) -> list[Tail]:
    return [Tail(f"{_ROOT}/orders/{number}", first, queues.pack_entries([(number, 100, 7)])) for number in range(count)]


def _syncs(disk: SimDisk) -> list[str]:
    return [line.rpartition(" ")[0] for line in disk.faults.trace if line.startswith("sync")]


def _survive(disk: SimDisk, tails: list[Tail]) -> None:
    found = disk.crash().files()
    for tail in tails:
        data = found[f"{tail.folder}/{0:020d}"]
        assert len(data) == 8 * queues.ENTRY_BYTES
        assert data[tail.first * queues.ENTRY_BYTES :][: len(tail.entries)] == tail.entries


def test_many_files_are_made_durable_by_one_sync_with_their_names() -> None:
    disk = SimDisk()
    files = _files(disk)
    disk.faults = Faults()
    files.write(_tails(5))
    assert _syncs(disk) == ["sync all"]
    _survive(disk, _tails(5))


def test_a_few_files_are_synced_each_by_itself() -> None:
    disk = SimDisk()
    files = _files(disk, together_min=6)
    disk.faults = Faults()
    files.write(_tails(5))
    assert "sync all" not in _syncs(disk) and _syncs(disk).count("sync") == 5
    _survive(disk, _tails(5))


def test_a_failure_of_somebody_elses_file_costs_no_more_than_syncing_each_by_itself() -> None:
    disk = SimDisk()
    files = _files(disk)
    disk.faults = Faults(fail_at=1, fail_errno=errno.EIO, fail_kind="sync all", is_foreign=True)
    files.write(_tails(5))
    assert disk.faults.fired and _syncs(disk).count("sync") == 5
    _survive(disk, _tails(5))


@pytest.mark.parametrize("seed", range(8))
def test_a_failure_of_our_own_file_is_final_and_never_taken_for_durable(seed: int) -> None:
    disk = SimDisk(seed)
    files = _files(disk)
    disk.faults = Faults(fail_at=1, fail_errno=errno.EIO, fail_kind="sync all")
    try:
        files.write(_tails(5))
    except SyncFailedError:
        return
    _survive(disk, _tails(5))


def test_names_made_on_the_way_to_a_sync_that_never_came_are_made_durable_by_the_next_process() -> None:
    """The power goes in the common sync of one process, then a later one writes a few files by themselves."""
    disk = SimDisk()
    files = _files(disk)
    disk.faults = Faults(power_cut_at=1, fail_kind="sync all")
    with pytest.raises(PowerCut):
        files.write(_tails(3))
    # The process died, not the machine.
    disk = disk.restart()
    _files(disk, together_min=64).write(_tails(3))
    _survive(disk, _tails(3))


def test_a_topic_that_went_and_came_again_is_durable_after_a_common_sync_that_failed() -> None:
    disk = SimDisk()
    files = _files(disk)
    files.write(_tails(3))
    disk.remove_tree(f"{_ROOT}/orders")
    disk.faults = Faults(fail_at=1, fail_errno=errno.EIO, fail_kind="sync all", is_foreign=True)
    files.write(_tails(3))
    _survive(disk, _tails(3))


def test_a_power_cut_at_any_operation_leaves_what_was_durable_before() -> None:
    at, fired = 0, True
    while fired:
        at += 1
        disk = SimDisk(seed=at)
        files = _files(disk)
        files.write(_tails(3))
        disk.faults = Faults(power_cut_at=at)
        try:
            files.write(_tails(3, first=1))
        except PowerCut:
            pass
        fired = disk.faults.fired
        survivor = disk.crash(random.Random(at)).files()
        for tail in _tails(3):
            assert survivor[f"{tail.folder}/{0:020d}"][: len(tail.entries)] == tail.entries
