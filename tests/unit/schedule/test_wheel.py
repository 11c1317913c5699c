"""RocketMQ's timer state in a folder, read and written."""

from __future__ import annotations

import struct

from gantry.schedule import wheel
from gantry.schedule.wheel import WheelPosition
from testkit.simdisk import SimDisk

PATH = "/store/config/timercheck"


def put(disk: SimDisk, data: bytes) -> None:
    disk.make_folders("/store/config")
    file = disk.open(PATH, create=True)
    file.pwrite(data, 0)
    file.close()


def test_a_folder_without_a_timer_has_no_position() -> None:
    disk = SimDisk()
    assert wheel.load(disk, "/store") is None
    put(disk, b"short")
    assert wheel.load(disk, "/store") is None


def test_what_both_master_and_slave_have_read_counts() -> None:
    disk = SimDisk()
    put(disk, struct.pack(">7q", 1_700_000_000_000, 99, 40, 30, 0, 0, 0).ljust(4096, b"\0"))
    assert wheel.load(disk, "/store") == WheelPosition(1_700_000_000_000, 30)


def test_a_position_reads_as_it_was_written_and_the_old_wheel_goes() -> None:
    disk = SimDisk()
    disk.make_folders("/store/config")
    disk.make_folders("/store/timerlog")
    disk.open("/store/timerwheel", create=True).close()
    disk.open("/store/timerlog/00000000000000000000", create=True).close()
    wheel.save(disk, "/store", WheelPosition(5, 6), 7)
    wheel.forget(disk, "/store")
    assert wheel.load(disk, "/store") == WheelPosition(5, 6)
    assert not disk.exists("/store/timerwheel") and not disk.exists("/store/timerlog/00000000000000000000")
