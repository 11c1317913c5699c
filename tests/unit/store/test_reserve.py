from __future__ import annotations

import pytest

from gantry.errors import DiskFullError
from gantry.store.reserve import Reserve
from testkit.simdisk import SimDisk
from testkit.smallstore import small

_PATH = "/s/gantry/reserve"


def _disk() -> SimDisk:
    disk = SimDisk(quota_bytes=40 << 10)
    disk.make_folders("/s/gantry")
    return disk


def _write(disk: SimDisk) -> None:
    file = disk.open("/s/gantry/wanted", create=True)
    file.allocate(35 << 10)
    file.close()


def test_a_job_that_finds_no_room_gets_that_of_the_reserve() -> None:
    disk = _disk()
    reserve = Reserve(disk, small("/s"))
    reserve.keep()
    assert disk.exists(_PATH) and reserve.is_whole
    reserve.carry_out(lambda: _write(disk))
    assert not disk.exists(_PATH) and not reserve.is_whole
    reserve.keep()
    assert not reserve.is_whole, "there is no room to keep it again"
    disk.unlink("/s/gantry/wanted")
    reserve.keep()
    assert disk.exists(_PATH) and reserve.is_whole


def test_a_job_that_needs_more_than_the_reserve_fails_and_so_does_one_without_any() -> None:
    disk = _disk()
    reserve = Reserve(disk, small("/s"))

    def too_much() -> None:
        raise DiskFullError("no room")

    reserve.keep()
    for _ in range(2):
        with pytest.raises(DiskFullError):
            reserve.carry_out(too_much)
    assert not reserve.is_whole


def test_the_reserve_of_an_earlier_life_is_room_too() -> None:
    disk = _disk()
    Reserve(disk, small("/s")).keep()
    Reserve(disk, small("/s")).carry_out(lambda: _write(disk))
    assert disk.exists("/s/gantry/wanted") and not disk.exists(_PATH)
