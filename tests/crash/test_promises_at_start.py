"""A start that dies anywhere hides no loss: who comes after it still finds out that the disk lost something."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gantry.broker.role import membership
from gantry.broker.role.membership import Membership
from gantry.replication import term_promise
from gantry.replication.epochs import EpochTable
from gantry.replication.member_files import StoreIdentity
from gantry.replication.term_promise import Beginning, Ending, TermPromise
from gantry.store import filenames, recoverypoint
from gantry.store.recoverypoint import IndexState, RecoveryPoint
from testkit.simdisk import PowerCut, SimDisk

ROOT = "/store"
JAVA = (0, 0, 0, 0, 0)
POINT = RecoveryPoint(1, False, (4096, 10, 10, 10), 500, 0, 0, IndexState(), JAVA, JAVA)


def member(disk: SimDisk) -> Membership:
    found = term_promise.load(disk, ROOT)
    return Membership(b"", StoreIdentity("c", "s"), EpochTable(), found or TermPromise(0))


def start(disk: SimDisk, log_end: int, boot: str) -> TermPromise:
    """As a broker does it; opening the store moves its recovery point."""
    one = member(disk)
    membership.expect(one, disk, ROOT)
    point = recoverypoint.load(disk, ROOT)
    assert point is not None
    recoverypoint.save(disk, ROOT, replace(point, generation=point.generation + 1, flushed=log_end))
    membership.begin(one, disk, ROOT, Beginning(boot, True, log_end, 0))
    return one.term_promise


def folder() -> SimDisk:
    """Of a process under SYNC flush that was killed; its log was durable up to 500."""
    disk = SimDisk()
    disk.make_folders(filenames.ours(ROOT))
    recoverypoint.save(disk, ROOT, POINT)
    term_promise.save(disk, ROOT, TermPromise(2, promise=9, boot_id="boot-1", ending=Ending.UNKNOWN))
    disk.sync_all()
    return disk


@pytest.mark.parametrize(("log_end", "losses"), [(300, 1), (500, 0), (800, 0)])
def test_a_short_log_counts_once_wherever_the_power_goes_during_the_start(log_end: int, losses: int) -> None:
    cuts = 0
    for cut_at in range(1, 60):
        for seed in range(6):
            disk = folder()
            disk.faults.power_cut_at = disk.faults.seen + cut_at
            try:
                start(disk, log_end, "boot-2")
            except PowerCut:
                cuts += 1
            after = start(disk.crash(Random(seed)), log_end, "boot-3")
            assert (after.losses, after.promise, after.expected, after.ending) == (losses, 9, 0, Ending.UNKNOWN)
    assert cuts > 30, "the start has that many operations"


def test_an_end_is_noted_whole_or_not_and_never_costs_the_promise() -> None:
    for cut_at in range(1, 20):
        for seed in range(6):
            disk = folder()
            one = member(disk)
            disk.faults.power_cut_at = disk.faults.seen + cut_at
            try:
                membership.end(one, disk, ROOT, Ending.CLEAN)
            except PowerCut:
                pass
            found = term_promise.load(disk.crash(Random(seed)), ROOT)
            assert found is not None and found.promise == 9 and found.ending in (Ending.UNKNOWN, Ending.CLEAN)
