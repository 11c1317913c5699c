"""What a member keeps on its disk, and what is done to its log before it is opened."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gantry.errors import StoreError
from gantry.replication import member_files
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Step
from gantry.replication.member_files import Plan, StoreIdentity
from gantry.store import filenames
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.store import Store
from testkit import storeplay
from testkit.ledger import LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.storeplay import ROOT, StorePlay

SETTINGS = replace(storeplay.settings(), keeps_tail=True)
EPOCHS = table_of([(1, 0), (4, 700)])


def test_who_one_is_and_the_epochs_are_read_back() -> None:
    disk = SimDisk()
    assert member_files.load_identity(disk, ROOT) is None and not member_files.load_epochs(disk, ROOT).entries
    member_files.save_identity(disk, ROOT, StoreIdentity("cluster", "store"))
    member_files.save_epochs(disk, ROOT, EPOCHS)
    after = disk.crash()
    assert member_files.load_identity(after, ROOT) == StoreIdentity("cluster", "store")
    assert member_files.load_epochs(after, ROOT) == EPOCHS


def test_damaged_member_files_are_said_not_guessed() -> None:
    disk = SimDisk()
    member_files.save_epochs(disk, ROOT, EPOCHS)
    disk.open(filenames.epochs(ROOT), create=False).pwrite(b"x", 20)
    with pytest.raises(StoreError, match=r"restore it from .*\.bak"):
        member_files.load_epochs(disk, ROOT)
    member_files.save_identity(disk, ROOT, StoreIdentity("cluster", ""))
    with pytest.raises(StoreError, match="no storeUID"):
        member_files.load_identity(disk, ROOT)


def written(disk: SimDisk) -> tuple[Store, int]:
    """A member's store with several segments, of which a part is confirmed; and where a later record begins."""
    master = StorePlay(SimDisk(), LogLedger())
    source = master.open()
    for _ in range(30):
        master.append(2, 700)
    slave = open_store(SETTINGS, disk, SimClock(), InlineBackground())
    while slave.written.offset < source.written.offset:
        slave.append_raw(slave.written.offset, source.chunk(slave.written.offset, 900)[0])
    boundaries = [entry.log_offset for entries in source.reader.entries(0) for entry in entries]
    slave.confirmed.advance(boundaries[10])
    return slave, boundaries[25]


def test_a_cut_log_ends_there_and_nothing_stands_behind_it() -> None:
    disk = SimDisk()
    store, at = written(disk)
    end = store.written.offset
    store.close()
    member_files.save_plan(disk, ROOT, Plan(Step.CUT, at, EPOCHS))
    assert member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock()) == Plan(Step.CUT, at, EPOCHS)
    assert member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock()) is None
    again = open_store(SETTINGS, disk, SimClock(), InlineBackground())
    assert again.written.offset == at < end and again.confirmed.offset == store.confirmed.offset
    assert member_files.load_epochs(disk, ROOT) == EPOCHS
    logs = [data for path, data in sorted(disk.files().items()) if "/commitlog/" in path]
    assert not any(b"".join(logs)[at:])


def test_what_is_confirmed_is_not_cut() -> None:
    disk = SimDisk()
    store, _ = written(disk)
    confirmed = store.confirmed.offset
    store.close()
    member_files.save_plan(disk, ROOT, Plan(Step.CUT, confirmed - 1, EPOCHS))
    before = disk.files()
    with pytest.raises(StoreError, match="nothing was cut"):
        member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock())
    logs = {path: data for path, data in disk.files().items() if "/commitlog/" in path}
    assert logs == {path: data for path, data in before.items() if "/commitlog/" in path}


@pytest.mark.parametrize("kind", ["create", "sync", "rename", "sync folder"])
def test_a_plan_that_was_not_kept_is_carried_out_by_no_later_start(kind: str) -> None:
    disk = SimDisk()
    store, at = written(disk)
    disk.faults = Faults(fail_at=1, fail_kind=kind)
    with pytest.raises(StoreError):
        member_files.save_plan(disk, ROOT, Plan(Step.CUT, at, EPOCHS))
    assert disk.faults.fired
    store.confirmed.advance(store.written.offset)  # it goes on, follows, and acknowledges what is there
    member_files.save_epochs(disk, ROOT, EPOCHS)
    store.close()
    for after in (disk, disk.crash()):
        assert member_files.carry_out(after, ROOT, SETTINGS.segment_bytes, SimClock()) is None
        again = open_store(SETTINGS, after, SimClock(), InlineBackground())
        assert again.written.offset == store.written.offset
        again.close()


def test_an_empty_log_begins_elsewhere() -> None:
    disk = SimDisk()
    open_store(SETTINGS, disk, SimClock(), InlineBackground()).close()
    at = 5 * SETTINGS.segment_bytes
    member_files.save_plan(disk, ROOT, Plan(Step.BEGIN, at, table_of([])))
    member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock())
    store = open_store(SETTINGS, disk, SimClock(), InlineBackground())
    assert store.reader.log_start == store.written.offset == store.confirmed.offset == at


def test_of_a_log_that_is_thrown_away_nothing_is_left_whenever_the_power_goes() -> None:
    whole = SimDisk()
    store, _ = written(whole)
    store.close()
    open_store(SETTINGS, whole, SimClock(), InlineBackground()).close()  # tables have backups by now
    member_files.save_plan(whole, ROOT, Plan(Step.BEGIN, 0, table_of([]), "another"))
    whole.sync_all()
    cuts, is_done = 0, False
    while not is_done:
        disk = whole.crash()
        disk.faults = Faults(power_cut_at=cuts + 1)
        try:
            member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock())
            is_done = True
        except PowerCut:
            cuts += 1
        for rng in (None, random.Random(cuts)):
            after = disk.crash(rng)
            member_files.carry_out(after, ROOT, SETTINGS.segment_bytes, SimClock())
            again = open_store(SETTINGS, after, SimClock(), InlineBackground())
            assert again.written.offset == again.confirmed.offset == 0
            assert [again.queue_range(topic, queue_id) for topic, queue_id in again.queues()] == []
    assert cuts > 5


@pytest.mark.parametrize("step", [Step.CUT, Step.BEGIN])
def test_a_power_cut_at_any_point_of_it_is_repaired_by_the_next_start(step: Step) -> None:
    whole = SimDisk()
    at = 3 * SETTINGS.segment_bytes
    if step is Step.CUT:
        store, at = written(whole)
        store.close()
    else:
        open_store(SETTINGS, whole, SimClock(), InlineBackground()).close()
    member_files.save_plan(whole, ROOT, Plan(step, at, EPOCHS))
    whole.sync_all()
    cuts = 0
    while True:
        disk = whole.crash()
        disk.faults = Faults(power_cut_at=cuts + 1)
        try:
            member_files.carry_out(disk, ROOT, SETTINGS.segment_bytes, SimClock())
        except PowerCut:
            cuts += 1
            for rng in (None, random.Random(cuts)):
                after = disk.crash(rng)
                member_files.carry_out(after, ROOT, SETTINGS.segment_bytes, SimClock())
                again = open_store(SETTINGS, after, SimClock(), InlineBackground())
                assert again.written.offset == at and member_files.load_plan(after, ROOT) is None
                assert member_files.load_epochs(after, ROOT) == EPOCHS
            continue
        break
    assert cuts > 5
