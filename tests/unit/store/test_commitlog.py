"""Appending: what stands in the files, read by a reader of the test's own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.errors import DiskFullError
from gantry.leaves import frames, records
from gantry.store.background import InlineBackground
from gantry.store.commitlog import CommitLog, RunTooLongError
from gantry.store.disk import RealDisk
from gantry.store.segments import Segments
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import HOST, message, parse, read_folder

SIZE = 8192


def _log(folder: Path | str, disk: RealDisk | SimDisk | None = None) -> CommitLog:
    disk = disk or RealDisk()
    disk.make_folders(f"{folder}/commitlog")
    disk.make_folders(f"{folder}/gantry")
    segments = Segments(disk, str(folder), SIZE, SimClock(), InlineBackground().housekeeper)
    segments.load()
    log = CommitLog(segments, SIZE)
    log.resume(0)
    return log


def _run(count: int, size: int = 100) -> list[frames.Send]:
    sends = [message(body=bytes([65 + number % 26]) * size) for number in range(count)]
    for number, send in enumerate(sends):
        send.queue_offset = number
    return sends


def test_a_run_is_found_in_the_file_record_by_record(tmp_path: Path) -> None:
    log = _log(tmp_path)
    sends = _run(5)
    end = log.append(sends, 1234, HOST, together=False)
    found = read_folder(tmp_path)
    assert [(one.log_offset, one.size, one.body) for one in found] == [
        (send.log_offset, send.size, send.body) for send in sends
    ]
    assert {one.store_ms for one in found} == {1234} and end == log.end == found[-1].log_offset + found[-1].size


def test_one_run_is_one_write(tmp_path: Path) -> None:
    disk = SimDisk()
    log = _log("/s", disk)
    before = len(disk.faults.trace)
    log.append(_run(20), 1, HOST, together=False)
    assert [line.split()[0] for line in disk.faults.trace[before:]] == ["write"]


def test_a_record_that_does_not_fit_goes_to_the_next_segment_behind_a_blank(tmp_path: Path) -> None:
    log = _log(tmp_path)
    sends = _run(30, 1000)
    log.append(sends, 1, HOST, together=False)
    assert [one.log_offset for one in read_folder(tmp_path)] == [send.log_offset for send in sends]
    first = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    last = list(parse(first, 0))[-1]
    at = last.log_offset + last.size
    assert struct.unpack_from(">ii", first, at) == (SIZE - at, -875286124)
    assert not any(first[at + 8 :])


@pytest.mark.parametrize("room", range(24))
def test_eight_bytes_always_remain_for_the_blank(tmp_path: Path, room: int) -> None:
    log = _log(tmp_path)
    log.append(_run(1, 5000), 1, HOST, together=False)
    overhead = records.size_of(_run(1, 0)[0])
    begin = log.end
    log.append(_run(1, SIZE - begin - overhead - room), 1, HOST, together=False)
    if room >= 8:
        assert log.end == SIZE - room
    else:
        assert log.end == 2 * SIZE - begin - room, "it went to the next segment whole"
    log.append(_run(1), 1, HOST, together=False)
    found = read_folder(tmp_path)
    assert len(found) == 3 and found[-1].log_offset >= SIZE


def test_a_run_that_belongs_together_lies_in_one_segment(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(_run(1, 5000), 1, HOST, together=False)
    sends = _run(4, 1000)
    log.append(sends, 1, HOST, together=True)
    assert {send.log_offset // SIZE for send in sends} == {1}
    assert [one.log_offset for one in read_folder(tmp_path)][1:] == [send.log_offset for send in sends]


def test_what_fits_no_segment_is_refused_before_anything_happens(tmp_path: Path) -> None:
    log = _log(tmp_path)
    with pytest.raises(RunTooLongError, match="do not fit segments of 8192"):
        log.append(_run(1, SIZE), 1, HOST, together=False)
    with pytest.raises(RunTooLongError):
        log.append(_run(10, 1000), 1, HOST, together=True)
    assert log.end == 0 and read_folder(tmp_path) == []


def test_a_run_over_several_segments_that_finds_no_room_leaves_nothing() -> None:
    disk = SimDisk(quota_bytes=3 * SIZE - 100)
    log = _log("/s", disk)
    log.append(_run(2, 1000), 1, HOST, together=False)
    before = disk.read(f"/s/commitlog/{0:020d}")
    end = log.end
    with pytest.raises(DiskFullError):
        log.append(_run(20, 1000), 1, HOST, together=False)
    assert log.end == end and disk.read(f"/s/commitlog/{0:020d}") == before


def test_entries_of_runs_are_at_hand_once_until_a_run_without_them_comes(tmp_path: Path) -> None:
    log = _log(tmp_path)
    scanned = (True, True, False, True)
    ends = [0, *(log.append(_run(2), 1, HOST, is_scanned=is_scanned) for is_scanned in scanned)]
    assert log.take_entries(0, ends[1] - 1) == ([], 0), "not to its end"
    entries, reached = log.take_entries(0, ends[3])
    assert reached == ends[2] and [entry.log_offset + entry.size for entry in entries][1::2] == ends[1:3]
    assert log.take_entries(0, ends[2]) == ([], 0) and log.take_entries(ends[2], ends[4]) == ([], ends[2])
    entries, reached = log.take_entries(ends[3], ends[4])
    assert len(entries) == 2 and reached == ends[4]


def test_entries_that_nobody_takes_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry.store.commitlog._RECENT_MAX", 3)
    log = _log(tmp_path)
    ends = [0, *(log.append(_run(2), 1, HOST, is_scanned=True) for _ in range(2))]
    assert log.take_entries(0, ends[2]) == ([], 0) and len(log.take_entries(ends[1], ends[2])[0]) == 2


def test_entries_that_were_taken_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry.store.commitlog._RECENT_MAX", 3)
    log = _log(tmp_path)
    start = 0
    for _ in range(4):
        end = log.append(_run(1), 1, HOST, is_scanned=True)
        assert len(log.take_entries(start, end)[0]) == 1
        start = end
    for _ in range(3):
        end = log.append(_run(1), 1, HOST, is_scanned=True)
    assert len(log.take_entries(start, end)[0]) == 3


def test_slices_and_records_are_checked_against_the_log(tmp_path: Path) -> None:
    log = _log(tmp_path)
    sends = _run(3)
    end = log.append(sends, 1, HOST, together=False)
    second = sends[1]
    record = log.record(second.log_offset, second.size, end)
    assert record is not None and record.body == second.body
    assert len(log.slice(second.log_offset, second.size)) == second.size
    assert log.record(second.log_offset + 1, second.size, end) is None
    assert log.record(second.log_offset, second.size + 1, end) is None
    assert log.record(second.log_offset, second.size, second.log_offset + 1) is None
    assert log.record(-5, 100, end) is None
    assert not log.holds(SIZE - 50, 100, 10 * SIZE), "no record spans segments"


def test_rewriting_makes_pages_durable_that_a_failed_sync_left_clean() -> None:
    disk = SimDisk()
    log = _log("/s", disk)
    end = log.append(_run(5), 1, HOST, together=False)
    log.rewrite(0, end)
    assert len(list(parse(disk.crash().read(f"/s/commitlog/{0:020d}"), 0))) == 5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2500), st.booleans()), min_size=1, max_size=12))
def test_whatever_is_appended_reads_back_in_order(runs: list[tuple[int, int, bool]]) -> None:
    disk = SimDisk()
    log = _log("/s", disk)
    kept = []
    for count, size, together in runs:
        sends = _run(count if not together else min(count, 3), size)
        log.append(sends, 1, HOST, together)
        kept += [(send.log_offset, send.body) for send in sends]
    found = []
    for path, data in sorted(disk.files().items()):
        if "/commitlog/" in path:
            found += [(one.log_offset, one.body) for one in parse(data, 0)]
    assert found == kept
