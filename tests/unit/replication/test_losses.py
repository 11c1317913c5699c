"""Messages that a cut of the log takes are counted once, whenever the power goes meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gantry.broker.machine import Machine
from gantry.broker.metrics import groupmetrics
from gantry.broker.role import reshaping
from gantry.broker.settings.config import Role
from gantry.replication import losses, member_files
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Step
from gantry.replication.losses import Losses
from gantry.replication.member_files import Plan
from gantry.store import filenames
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from testkit import storeplay
from testkit.ledger import LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.storeplay import ROOT, StorePlay

SETTINGS = replace(storeplay.settings(), keeps_tail=True)
EPOCHS = table_of([(1, 0)])


def planned(disk: SimDisk, behind: int = 15) -> Losses:
    """A closed store of several segments that has to be cut before its last messages; what that will take."""
    master = StorePlay(SimDisk(), LogLedger())
    source = master.open()
    for _ in range(15):
        master.append(2, 700)
    copy = open_store(SETTINGS, disk, SimClock(), InlineBackground())
    while copy.written.offset < source.written.offset:
        copy.append_raw(copy.written.offset, source.chunk(copy.written.offset, 900)[0])
    entries = [entry for found in source.reader.entries(0) for entry in found]
    copy.confirmed.advance(entries[4].log_offset)
    copy.close()
    gone = entries[-behind:]
    member_files.save_plan(disk, ROOT, Plan(Step.CUT, gone[0].log_offset, EPOCHS))
    size = sum(entry.size for entry in gone)
    return Losses(behind, size, 1, behind, size)


def cut(disk: SimDisk, role: Role = Role.ASYNC_MASTER) -> Losses:
    machine = Machine(disk=disk, clock=SimClock())
    return asyncio.run(reshaping.carry_out(role, machine, ROOT, SETTINGS.segment_bytes))


def test_what_asynchronous_replication_lost_is_counted_over_all_lives(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    expected = planned(disk)
    with caplog.at_level(logging.INFO):
        assert cut(disk) == expected
    (line,) = caplog.messages
    assert f"{expected.messages} messages ({expected.bytes} bytes) are lost that ASYNC_MASTER had acknowledged" in line
    assert cut(disk) == losses.load(disk, ROOT) == expected
    entries = storeplay.read_log(disk, SETTINGS.segment_bytes).entries
    member_files.save_plan(disk, ROOT, Plan(Step.CUT, entries[-2].log_offset, EPOCHS))
    size = sum(entry.size for entry in entries[-2:])
    assert cut(disk) == Losses(expected.messages + 2, expected.bytes + size, 2, 2, size)


def test_metrics_and_the_state_say_what_was_lost() -> None:
    parts = SimpleNamespace(losses=Losses(40, 9000, 1, 40, 9000))
    assert list(groupmetrics.lost_messages(parts)) == [((), 40)]  # type: ignore[arg-type]
    assert list(groupmetrics.lost_bytes(parts)) == [((), 9000)]  # type: ignore[arg-type]
    assert not list(groupmetrics.lost_messages(SimpleNamespace(losses=None)))  # type: ignore[arg-type]


def test_of_what_synchronous_replication_cuts_nothing_was_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    expected = planned(disk)
    with caplog.at_level(logging.INFO):
        assert cut(disk, Role.SYNC_MASTER) == Losses()
    assert f"{expected.messages} messages ({expected.bytes} bytes) are gone that SYNC_MASTER does not" in caplog.text


def test_each_is_counted_once_whenever_the_power_goes() -> None:
    whole = SimDisk()
    expected = planned(whole)
    whole.sync_all()
    cuts, is_done = 0, False
    while not is_done:
        disk = whole.crash()
        disk.faults = Faults(power_cut_at=cuts + 1)
        try:
            cut(disk)
            is_done = True
        except PowerCut:
            cuts += 1
        for rng in (None, random.Random(cuts)):
            after = disk.crash(rng)
            assert cut(after) == expected, f"power cut at operation {cuts}"
            assert member_files.load_plan(after, ROOT) is None
    assert cuts > 10


def test_a_count_that_cannot_be_read_keeps_no_member_from_its_group(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    planned(disk)
    for path in (filenames.losses(ROOT), f"{filenames.losses(ROOT)}.bak"):
        disk.open(path, create=True).pwrite(b"no json", 0)
    assert cut(disk) == Losses()
    assert member_files.load_plan(disk, ROOT) is None and "was not counted" in caplog.text
