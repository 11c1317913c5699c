from __future__ import annotations

from pathlib import Path

import pytest

from gantry.errors import DiskFullError, StoreError
from gantry.leaves import records
from gantry.store.background import InlineBackground
from gantry.store.disk import RealDisk
from gantry.store.segments import Segments, create_segment
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import message

SIZE = 8192


def _segments(folder: Path | str, disk: RealDisk | SimDisk | None = None, at_once: bool = True) -> Segments:
    disk = disk or RealDisk()
    disk.make_folders(f"{folder}/commitlog")
    disk.make_folders(f"{folder}/gantry")
    background = InlineBackground(at_once)
    segments = Segments(disk, str(folder), SIZE, SimClock(), background.housekeeper)
    segments.load()
    return segments


def test_segments_follow_each_other_and_are_found_by_offset(tmp_path: Path) -> None:
    segments = _segments(tmp_path)
    segments.ensure(0)
    segments.ensure(2 * SIZE + 5)
    assert [segment.start for segment in segments] == [0, SIZE, 2 * SIZE]
    assert segments.at(SIZE - 1).start == 0 and segments.at(SIZE).start == SIZE
    assert [segment.start for segment in segments.covering(SIZE - 1, SIZE + 1)] == [0, SIZE]
    assert [segment.start for segment in segments.covering(SIZE, SIZE)] == []
    assert sorted(path.stat().st_size for path in (tmp_path / "commitlog").iterdir()) == [SIZE] * 3
    assert not list((tmp_path / "gantry").iterdir())


def test_places_near_each_other_are_one_range_of_their_segment() -> None:
    size = 1 << 20
    disk = SimDisk()
    for folder in ("/s/commitlog", "/s/gantry"):
        disk.make_folders(folder)
    segments = Segments(disk, "/s", size, SimClock(), InlineBackground().housekeeper)
    segments.load()
    segments.ensure(0)
    segments.ensure(2 * size)
    places = [(100, 50), (150, 50), (8_000, 10), (500_000, 20), (size - 10, 10), (size, 30), (size + 5_000, 5), (40, 7)]
    assert [(segment.start, ranges) for segment, ranges in segments.ranges(places)] == [
        (0, [(100, 8_010), (500_000, 500_020), (size - 10, size)]),
        (size, [(0, 5_005)]),
        (0, [(40, 47)]),
    ]
    assert segments.ranges([]) == []


def test_an_empty_log_may_begin_anywhere(tmp_path: Path) -> None:
    segments = _segments(tmp_path)
    segments.ensure(5 * SIZE + 1)
    assert segments.start == 5 * SIZE and segments.end == 6 * SIZE


def test_the_next_segment_is_allocated_ahead(tmp_path: Path) -> None:
    segments = _segments(tmp_path, at_once=False)
    segments.ensure(0)
    segments.prepare(SIZE)
    segments.prepare(SIZE)
    assert segments.end == SIZE
    segments.ensure(SIZE)
    assert segments.end == 2 * SIZE


def test_a_name_appears_only_with_all_its_blocks() -> None:
    disk = SimDisk(quota_bytes=SIZE // 2)
    disk.make_folders("/s/commitlog")
    disk.make_folders("/s/gantry")
    with pytest.raises(DiskFullError):
        create_segment(disk, "/s", 0, SIZE)
    assert disk.list("/s/commitlog") == [] and disk.list("/s/gantry") == []


def test_a_full_disk_is_tried_again_once_a_second() -> None:
    disk = SimDisk(quota_bytes=SIZE + SIZE // 2)
    disk.make_folders("/s/commitlog")
    disk.make_folders("/s/gantry")
    clock = SimClock()
    segments = Segments(disk, "/s", SIZE, clock, InlineBackground().housekeeper)
    segments.ensure(0)
    with pytest.raises(DiskFullError):
        segments.ensure(SIZE)
    disk.quota_bytes *= 10
    with pytest.raises(DiskFullError, match="no room for the next segment"):
        segments.ensure(SIZE)
    clock.advance(1001)
    segments.ensure(SIZE)
    assert segments.end == 2 * SIZE


def test_an_empty_last_file_is_removed(tmp_path: Path) -> None:
    _segments(tmp_path).ensure(0)
    (tmp_path / "commitlog" / f"{SIZE:020d}").touch()
    segments = _segments(tmp_path)
    assert len(segments) == 1 and not (tmp_path / "commitlog" / f"{SIZE:020d}").exists()


def test_a_file_of_another_size_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    with pytest.raises(StoreError, match=r"has 4096 bytes, expected 8192; set store.segment_bytes"):
        _segments(tmp_path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    segments = _segments(tmp_path)
    segments.ensure(0)
    segments.ensure(3 * SIZE)
    (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
    with pytest.raises(StoreError, match=rf"{2 * SIZE:020d} found where offset {SIZE} should begin"):
        _segments(tmp_path)


def test_cutting_zeroes_to_the_end_of_the_segment_and_removes_the_rest(tmp_path: Path) -> None:
    segments = _segments(tmp_path)
    segments.ensure(0)
    segments.ensure(2 * SIZE)
    for segment in segments:
        segment.file.pwrite(b"\xff" * SIZE, 0)
    segments.cut(SIZE + 100)
    assert [path.name for path in sorted((tmp_path / "commitlog").iterdir())] == [f"{0:020d}", f"{SIZE:020d}"]
    data = (tmp_path / "commitlog" / f"{SIZE:020d}").read_bytes()
    assert data == b"\xff" * 100 + bytes(SIZE - 100)


def test_dropping_leaves_the_last_segment(tmp_path: Path) -> None:
    segments = _segments(tmp_path)
    segments.ensure(0)
    segments.ensure(2 * SIZE)
    assert [segment.start for segment in segments.take_before(10 * SIZE)] == [0, SIZE]
    assert segments.start == 2 * SIZE and segments.at(2 * SIZE).start == 2 * SIZE


def test_the_time_of_the_oldest_record_is_read_by_the_housekeeper() -> None:
    disk, background = SimDisk(), InlineBackground(at_once=False)
    for folder in ("/s/commitlog", "/s/gantry"):
        disk.make_folders(folder)
    segments = Segments(disk, "/s", SIZE, SimClock(), background.housekeeper)
    for start, stored_ms in ((0, 1000), (SIZE, 2000)):
        segments.ensure(start)
        head = bytearray(SIZE)
        records.encode_run(head, 0, start, [message()], stored_ms, bytes(8))
        segments.at(start).file.pwrite(bytes(head), 0)
    assert segments.oldest_ms() == segments.oldest_ms() == -1
    background.step()
    assert not background.step() and segments.oldest_ms() == 1000
    segments.take_before(SIZE)
    assert segments.oldest_ms() == 1000, "of the one before, until it is read"
    background.step()
    assert segments.oldest_ms() == 2000
