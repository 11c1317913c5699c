"""The simulated disk forgets exactly what a disk may forget: checked here, because every crash test leans on it."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from gantry.errors import DiskFullError, StoreError, SyncFailedError
from gantry.store.disk import Disk, RealDisk
from testkit.simdisk import PAGE_BYTES, Faults, PowerCut, SimDisk

_PAGES = 16


def _durable_file(disk: SimDisk, path: str = "/f") -> None:
    file = disk.open(path, create=True)
    file.allocate(_PAGES * PAGE_BYTES)
    file.sync_data()
    disk.sync_folder("/")
    file.close()


def test_what_was_synced_survives_every_crash() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.pwrite(b"kept", 10)
    file.sync_data()
    disk.sync_folder("/")
    for seed in range(20):
        assert disk.crash(random.Random(seed)).read("/f") == bytes(10) + b"kept"


def test_of_unsynced_pages_any_subset_survives() -> None:
    disk = SimDisk()
    _durable_file(disk)
    file = disk.open("/f", create=False)
    for page in range(_PAGES):
        file.pwrite(b"x" * PAGE_BYTES, page * PAGE_BYTES)
    survivals = set()
    for seed in range(300):
        data = disk.crash(random.Random(seed)).read("/f")
        survivals.add(tuple(data[page * PAGE_BYTES] == ord("x") for page in range(_PAGES)))
    assert (True,) * _PAGES in survivals and (False,) * _PAGES in survivals
    assert any(not kept[0] and kept[-1] for kept in survivals), "a later page survives where an earlier one did not"


def test_a_page_may_be_torn_between_sectors() -> None:
    disk = SimDisk()
    _durable_file(disk)
    disk.open("/f", create=False).pwrite(b"x" * PAGE_BYTES, 0)
    kept = {disk.crash(random.Random(seed)).read("/f")[:PAGE_BYTES].count(b"x") for seed in range(300)}
    assert any(0 < count < PAGE_BYTES and count % 512 == 0 for count in kept)


def test_a_page_may_have_been_written_back_in_any_state_it_went_through() -> None:
    disk = SimDisk()
    _durable_file(disk)
    file = disk.open("/f", create=False)
    for state in (b"1", b"2", b"3"):
        file.pwrite(state, 0)
    assert {disk.crash(random.Random(seed)).read("/f")[:1] for seed in range(200)} == {b"\0", b"1", b"2", b"3"}


def test_a_write_after_the_last_sync_never_harms_pages_beside_it() -> None:
    disk = SimDisk()
    _durable_file(disk)
    file = disk.open("/f", create=False)
    file.pwrite(b"old" * 100, 0)
    file.sync_data()
    file.pwrite(b"new", 5 * PAGE_BYTES)
    for seed in range(50):
        assert disk.crash(random.Random(seed)).read("/f").startswith(b"old" * 100)


def test_a_crash_without_dice_keeps_only_what_is_durable() -> None:
    disk = SimDisk()
    disk.open("/f", create=True).pwrite(b"gone", 0)
    assert disk.crash().files() == {}


@pytest.mark.parametrize("change", ["create", "rename", "unlink"])
def test_names_are_lost_or_kept_until_their_folder_is_synced(change: str) -> None:
    disk = SimDisk()
    _durable_file(disk, "/a")
    if change == "create":
        disk.open("/b", create=True)
    elif change == "rename":
        disk.rename("/a", "/b")
    else:
        disk.unlink("/a")
    found = {tuple(disk.crash(random.Random(seed)).list("/")) for seed in range(60)}
    after = {"create": ("a", "b"), "rename": ("b",), "unlink": ()}[change]
    assert found == {("a",), after}
    disk.sync_folder("/")
    assert {tuple(disk.crash(random.Random(seed)).list("/")) for seed in range(20)} == {after}


def test_a_renamed_file_never_has_half_its_name() -> None:
    disk = SimDisk()
    _durable_file(disk, "/old")
    _durable_file(disk, "/new.tmp")
    disk.rename("/new.tmp", "/old")
    for seed in range(40):
        assert "old" in disk.crash(random.Random(seed)).list("/")


def test_a_file_moved_to_another_folder_is_in_one_of_them_and_syncing_either_decides_it() -> None:
    disk = SimDisk()
    disk.make_folders("/new")
    disk.make_folders("/ready")
    disk.open("/new/f", create=True)
    disk.sync_folder("/new")
    disk.rename("/new/f", "/ready/f")
    found = {tuple(disk.crash(random.Random(seed)).files()) for seed in range(40)}
    assert found == {("/new/f",), ("/ready/f",)}
    disk.sync_folder("/ready")
    assert {tuple(disk.crash(random.Random(seed)).files()) for seed in range(20)} == {("/ready/f",)}


def test_after_a_failed_sync_a_second_sync_proves_nothing() -> None:
    disk = SimDisk(seed=1)
    _durable_file(disk)
    file = disk.open("/f", create=False)
    disk.faults = Faults(fail_at=1, fail_kind="sync")
    for page in range(_PAGES):
        file.pwrite(b"x", page * PAGE_BYTES)
    with pytest.raises(SyncFailedError, match="sync /f"):
        file.sync_data()
    assert file.pread(1, 0) == b"x", "the page cache still shows it"
    file.sync_data()
    lost = disk.crash().read("/f").count(b"x")
    assert lost < _PAGES
    for page in range(_PAGES):
        file.pwrite(b"x", page * PAGE_BYTES)
    file.sync_data()
    assert disk.crash().read("/f").count(b"x") == _PAGES, "written again, it counts again"


def test_a_power_cut_comes_at_the_counted_operation() -> None:
    disk = SimDisk()
    _durable_file(disk)
    disk.faults = Faults(power_cut_at=3)
    file = disk.open("/f", create=False)
    file.pwrite(b"one", 0)
    file.pread(3, 0)
    file.sync_data()
    with pytest.raises(PowerCut, match="operation 3: write /f"):
        file.pwrite(b"two", 0)
    assert disk.crash().read("/f")[:3] == b"one"


def test_the_sync_that_is_cut_has_made_nothing_durable() -> None:
    disk = SimDisk()
    _durable_file(disk)
    file = disk.open("/f", create=False)
    file.pwrite(b"x", 0)
    disk.faults = Faults(power_cut_at=1)
    with pytest.raises(PowerCut):
        file.sync_data()
    assert disk.crash().read("/f")[:1] == b"\0"


def test_a_failing_write_leaves_a_part_of_itself() -> None:
    disk = SimDisk()
    _durable_file(disk)
    disk.faults = Faults(fail_at=1, fail_errno=errno.EIO, fail_kind="write")
    file = disk.open("/f", create=False)
    with pytest.raises(StoreError, match="Input/output error"):
        file.pwrite(b"abcd", 0)
    assert file.pread(4, 0) == b"ab\0\0"


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = SimDisk(quota_bytes=2 * PAGE_BYTES)
    file = disk.open("/f", create=True)
    with pytest.raises(DiskFullError, match="No space left"):
        file.pwrite(b"x" * (3 * PAGE_BYTES), 0)
    assert file.size() == 2 * PAGE_BYTES
    assert disk.usage("/")[1] == 0
    file.pwrite(b"y", 0)
    disk.unlink("/f")
    assert disk.usage("/")[1] == 2 * PAGE_BYTES
    disk.open("/g", create=True).allocate(PAGE_BYTES)


def test_allocated_space_is_there_when_it_is_written() -> None:
    disk = SimDisk(quota_bytes=4 * PAGE_BYTES)
    file = disk.open("/f", create=True)
    file.allocate(4 * PAGE_BYTES)
    with pytest.raises(DiskFullError):
        disk.open("/g", create=True).allocate(1)
    file.pwrite(b"x" * 4 * PAGE_BYTES, 0)


def test_a_map_shows_later_writes_also_when_the_file_has_grown() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.allocate(PAGE_BYTES)
    before = file.map()
    file.allocate(2 * PAGE_BYTES)
    file.pwrite(b"seen", 8)
    assert bytes(before[8:12]) == bytes(file.map()[8:12]) == b"seen"
    assert (len(before), len(file.map())) == (PAGE_BYTES, 2 * PAGE_BYTES)


def test_a_lock_is_held_until_released_or_crashed() -> None:
    disk = SimDisk()
    held = disk.lock("/lock")
    with pytest.raises(StoreError, match="locked by another broker"):
        disk.lock("/lock")
    disk.crash().lock("/lock")
    held.release()
    disk.lock("/lock")


def test_it_does_what_the_real_disk_does(tmp_path: Path) -> None:
    def play(disk: Disk, root: str) -> list[object]:
        seen: list[object] = []
        disk.make_folders(f"{root}/a/b")
        file = disk.open(f"{root}/a/b/f", create=True)
        file.allocate(10_000)
        file.pwrite(b"hello", 9_998)
        file.zero(9_999, 10_001)
        seen += [file.size(), file.pread(10, 9_997), bytes(file.map()[9_998:]), disk.list(f"{root}/a/b")]
        disk.open(f"{root}/a/b/g", create=True).pwrite(b"g", 0)
        disk.rename(f"{root}/a/b/g", f"{root}/a/b/f")
        seen += [disk.open(f"{root}/a/b/f", create=False).size(), file.size(), disk.list(f"{root}/a/b")]
        disk.sync_folder(f"{root}/a/b")
        file.sync_data()
        disk.unlink(f"{root}/a/b/f")
        disk.unlink(f"{root}/a/b/f")
        seen += [disk.exists(f"{root}/a/b"), disk.exists(f"{root}/a/b/f"), disk.list(f"{root}/nothing")]
        disk.remove_tree(f"{root}/a")
        disk.remove_tree(f"{root}/a")
        seen.append(disk.list(root))
        for path in ("missing", "missing/file"):
            with pytest.raises(StoreError, match="No such file"):
                disk.open(f"{root}/{path}", create=False)
        return seen

    assert play(SimDisk(), "/sim") == play(RealDisk(), str(tmp_path))
