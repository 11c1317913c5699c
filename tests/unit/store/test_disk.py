"""The real disk: what the Protocol promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gantry.errors import DiskFullError, StoreError
from gantry.store import foreign
from gantry.store.disk import RealDisk, unlink_in_order


def test_what_is_written_shows_through_a_map_taken_before(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.allocate(8192)
    view = file.map()
    file.pwrite(b"hello", 4094)
    assert bytes(view[4094:4099]) == b"hello" == file.pread(5, 4094)
    assert file.size() == 8192


def test_a_view_outlives_unmap_close_and_unlink(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a", create=True)
    file.pwrite(b"x" * 4096, 0)
    part = file.map()[10:20]
    file.unmap()
    file.close()
    disk.unlink(f"{tmp_path}/a")
    assert bytes(part) == b"x" * 10


def test_a_map_grows_with_its_file_and_an_empty_file_maps_to_nothing(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    assert len(file.map()) == 0
    file.pwrite(b"ab", 0)
    assert bytes(file.map()) == b"ab"
    file.pwrite(b"cd", 2)
    assert bytes(file.map()) == b"abcd"


def test_reading_behind_the_end_is_short(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a", create=True)
    file.pwrite(b"abc", 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 5) == b""


@pytest.mark.parametrize("folder", ["tmp", "/dev/shm"])
def test_zeroing_keeps_size_blocks_and_neighbours(tmp_path: Path, folder: str) -> None:
    where = tmp_path if folder == "tmp" else Path(folder)
    path = f"{where}/gantry-zero-{os.getpid()}"
    file = RealDisk().open(path, create=True)
    try:
        file.allocate(3 << 20)
        file.pwrite(b"\xff" * (3 << 20), 0)
        file.zero(1000, (3 << 20) - 1000)
        data = file.pread(3 << 20, 0)
        assert data[:1000] == data[-1000:] == b"\xff" * 1000
        assert not data[1000:-1000].strip(b"\0")
        assert file.size() == 3 << 20
        assert os.stat(path).st_blocks * 512 >= 3 << 20, "a hole was punched"
    finally:
        os.unlink(path)


def test_no_room_is_a_disk_full_error_and_not_the_end_of_the_process() -> None:
    full = "/dev/full"
    file = RealDisk().open(full, create=False)
    with pytest.raises(DiskFullError, match=r"write /dev/full"):
        file.pwrite(b"x", 0)


def test_a_missing_file_is_a_store_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"open .*nothing: No such file"):
        RealDisk().open(f"{tmp_path}/nothing", create=False)


def test_names(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_folders(f"{tmp_path}/a/b")
    disk.make_folders(f"{tmp_path}/a/b")
    disk.open(f"{tmp_path}/a/b/2", create=True).close()
    disk.open(f"{tmp_path}/a/b/1", create=True).close()
    assert disk.list(f"{tmp_path}/a/b") == ["1", "2"]
    assert disk.list(f"{tmp_path}/none") == []
    disk.rename(f"{tmp_path}/a/b/1", f"{tmp_path}/a/b/3")
    disk.sync_folder(f"{tmp_path}/a/b")
    assert disk.exists(f"{tmp_path}/a/b/3") and not disk.exists(f"{tmp_path}/a/b/1")
    unlink_in_order(disk, f"{tmp_path}/a/b/3")
    disk.unlink(f"{tmp_path}/a/b/3")
    disk.remove_tree(f"{tmp_path}/a")
    disk.remove_tree(f"{tmp_path}/a")
    assert not disk.exists(f"{tmp_path}/a")


def test_usage_and_time_of_change(tmp_path: Path) -> None:
    disk = RealDisk()
    total, free = disk.usage(str(tmp_path))
    assert 0 < free <= total
    found = os.statvfs(tmp_path)
    reserved = (found.f_bfree - found.f_bavail) * found.f_frsize
    assert total == found.f_blocks * found.f_frsize - reserved, "what is kept for root counts as neither used nor free"
    disk.open(f"{tmp_path}/a", create=True).close()
    os.utime(tmp_path / "a", ns=(0, 1_234_567_000_000))
    assert disk.modified_ms(f"{tmp_path}/a") == 1_234_567


def test_a_lock_is_held_once_and_its_holder_is_named(tmp_path: Path) -> None:
    disk, path = RealDisk(), f"{tmp_path}/lock"
    held = disk.lock(path)
    with pytest.raises(StoreError, match=rf"locked by another broker \(process {os.getpid()}\)"):
        disk.lock(path)
    held.release()
    disk.lock(path).release()


def test_rocketmqs_word_in_the_lock_file_stays_until_it_is_removed(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "lock"
    path.write_bytes(b"lock989\n")  # over an older process id
    for _ in range(2):
        held = disk.lock(str(path))
        assert foreign.has_opened(disk, str(tmp_path)), "a start that dies here must be told again"
        with pytest.raises(StoreError, match=rf"locked by another broker \(process {os.getpid()}\)"):
            disk.lock(str(path))
        held.release()
    held = disk.lock(str(path))
    foreign.forget_opening(disk, str(tmp_path))
    assert not foreign.has_opened(disk, str(tmp_path)) and path.read_bytes().split() == [b"%d" % os.getpid()]
    with pytest.raises(StoreError, match=rf"locked by another broker \(process {os.getpid()}\)"):
        disk.lock(str(path))
    path.write_bytes(b"lock" + path.read_bytes()[4:])
    with pytest.raises(StoreError, match=r"locked by another broker \(process unknown\)"):
        disk.lock(str(path))
    held.release()


def test_a_java_file_lock_on_the_same_byte_conflicts(tmp_path: Path) -> None:
    # Java's FileLock is a POSIX record lock of the process.
    path = f"{tmp_path}/lock"
    held = RealDisk().lock(path)
    code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB, 1, 0)"
    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert other.returncode != 0 and "BlockingIOError" in other.stderr
    held.release()
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_a_disk_for_reading_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    file = RealDisk(writable=False).open(f"{tmp_path}/a", create=False)
    assert bytes(file.map()) == b"abc"
    with pytest.raises(StoreError):
        file.pwrite(b"x", 0)


def test_what_cannot_be_a_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory; a file is where a folder has to be; choose another folder"):
        RealDisk().make_folders(f"{tmp_path}/file/store")
