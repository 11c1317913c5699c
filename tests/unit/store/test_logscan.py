from __future__ import annotations

from pathlib import Path

import pytest

from gantry.errors import CorruptRecordError
from gantry.leaves import frames
from gantry.store.background import InlineBackground
from gantry.store.commitlog import CommitLog
from gantry.store.disk import RealDisk
from gantry.store.logscan import LogScan, first_record_ms
from gantry.store.segments import Segments
from testkit.simclock import SimClock
from testkit.smallstore import HOST, message

SIZE = 8192


class Log:
    """Some records in segments of 8 KiB, to be damaged."""

    def __init__(self, folder: Path, count: int = 30, body_bytes: int = 700) -> None:
        disk = RealDisk()
        disk.make_folders(f"{folder}/commitlog")
        disk.make_folders(f"{folder}/gantry")
        self.segments = Segments(disk, str(folder), SIZE, SimClock(), InlineBackground().housekeeper)
        log = CommitLog(self.segments, SIZE)
        log.resume(0)
        self.sends: list[frames.Send] = []
        for number in range(count):
            send = message(body=bytes([97 + number % 26]) * body_bytes, keys="k" * 1500 if number == 7 else "")
            send.queue_offset = number
            log.append([send], 1000 * (number + 1), HOST, together=False)
            self.sends.append(send)
        self.end = log.end

    def write(self, at: int, data: bytes) -> None:
        segment = self.segments.at(at)
        segment.file.pwrite(data, at - segment.start)

    def scan(self, start: int = 0, durable: int | None = 0) -> tuple[LogScan, list[int]]:
        scan = LogScan(self.segments, start, durable)
        return scan, [entry.log_offset for slice_ in scan.entries() for entry in slice_]


def test_it_reads_over_blanks_to_where_nothing_was_written(tmp_path: Path) -> None:
    log = Log(tmp_path)
    scan, found = log.scan()
    assert found == [send.log_offset for send in log.sends]
    assert (scan.at, scan.reason, scan.count, scan.store_ms) == (log.end, "zero", 30, 30_000)
    scan, found = log.scan(log.sends[11].log_offset)
    assert found == [send.log_offset for send in log.sends[11:]]


def test_it_can_stop_earlier(tmp_path: Path) -> None:
    log = Log(tmp_path)
    scan = LogScan(log.segments, 0)
    end = log.sends[5].log_offset
    total = sum(len(slice_) for slice_ in scan.entries(end))
    assert total >= 5 and scan.at >= end


@pytest.mark.parametrize("part", ["body", "place", "size"])
def test_it_stops_before_a_record_that_is_not_whole(tmp_path: Path, part: str) -> None:
    log = Log(tmp_path)
    victim = log.sends[12]
    log.write(victim.log_offset + {"body": 100, "place": 35, "size": 0}[part], b"\xee")
    scan, found = log.scan()
    assert scan.at == victim.log_offset and scan.reason.startswith("bad: record at") and len(found) == 12


def test_a_sector_lost_in_the_properties_makes_a_record_torn(tmp_path: Path) -> None:
    log = Log(tmp_path)
    victim = log.sends[7]
    sector = (victim.log_offset + victim.size - 600) // 512 * 512
    log.write(sector, bytes(512))
    assert log.scan()[0].at == victim.log_offset
    # Below what was durable nothing can be torn; the checksum has nothing to say about properties.
    assert log.scan(durable=log.end)[0].at == log.end


def test_a_blank_that_does_not_fill_its_segment_is_bad(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(log.end, (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big"))
    scan, _ = log.scan()
    assert scan.at == log.end and "blank record" in scan.reason


def test_an_end_below_what_was_durable_is_damage_with_its_place(tmp_path: Path) -> None:
    log = Log(tmp_path)
    victim = log.sends[12]
    log.write(victim.log_offset + 100, b"\xee")
    scan, _ = log.scan()
    scan.judge(victim.log_offset, 0)
    with pytest.raises(CorruptRecordError, match=rf"at {victim.log_offset}.*was durable up to {log.end}.*store verify"):
        scan.judge(log.end, 0)


def test_an_end_with_a_durable_segment_behind_it_is_damage(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(log.sends[2].log_offset + 100, b"\xee")
    scan, _ = log.scan()
    second_ms = first_record_ms(log.segments.at(SIZE))
    assert second_ms > 0
    scan.judge(0, second_ms - 1)
    with pytest.raises(CorruptRecordError, match="has good records"):
        scan.judge(0, second_ms)
