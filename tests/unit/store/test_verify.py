from __future__ import annotations

import pytest

from gantry.errors import StoreError
from gantry.leaves import hashes, queues
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.verify import Report, verify
from testkit.ledger import Kept, LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.storeplay import ROOT, StorePlay, message, settings

FIRST_SEGMENT = f"{ROOT}/commitlog/{0:020d}"
FIRST_QUEUE = f"{ROOT}/consumequeue/orders/0/{0:020d}"


def _played(count: int = 40, close: bool = True) -> SimDisk:
    disk = SimDisk()
    play = StorePlay(disk, LogLedger())
    play.open()
    for _ in range(count // 4):
        play.append(4)
    if close:
        play.close()
    return disk if close else disk.restart()


def _report(disk: SimDisk) -> Report:
    return list(verify(disk, ROOT))[-1]


def test_a_store_that_stopped_in_order_is_whole() -> None:
    report = _report(_played())
    assert (report.records, report.entries, report.faults) == (40, 40, [])
    assert report.segments > 1
    assert report.by_topic.total() == 40
    assert not report.was_killed


def test_nothing_on_the_disk_changes() -> None:
    disk = _played()
    before = disk.files()
    _report(disk)
    assert disk.files() == before


def test_a_changed_body_is_a_fault_with_its_place() -> None:
    disk = _played()
    at = disk.read(FIRST_SEGMENT).index(b"00003.")
    disk.damage(FIRST_SEGMENT, at, b"X")
    report = _report(disk)
    assert report.fault_count
    assert "segment 00000000000000000000" in report.faults[0]


@pytest.mark.parametrize("where", ["the record", "the entry"])
def test_tags_that_the_queue_entry_does_not_know_are_a_fault(where: str) -> None:
    disk = _played()
    if where == "the record":
        disk.damage(FIRST_SEGMENT, disk.read(FIRST_SEGMENT).index(b"TAGS\x01tag") + 5, b"T")
    else:
        place, size, code = queues.unpack(disk.read(FIRST_QUEUE), 0)
        disk.damage(FIRST_QUEUE, 0, queues.pack_entries([(place, size, code + 1)]))
    report = _report(disk)
    assert report.fault_count == 1 and "one of the two is damaged" in report.faults[0]


def test_a_checksum_that_rocketmqs_broker_appended_covers_properties() -> None:
    disk = SimDisk()
    store = open_store(settings(), disk, SimClock(), InlineBackground())
    store.confirm_locally()
    send = message(Kept("orders", 0, 0, b"body", b"k1"))
    send.properties += b"__CRC32#\x010000000000\x02"
    store.append([send])
    end = send.log_offset + send.size
    store.close()
    total = hashes.crc31(disk.read(FIRST_SEGMENT)[send.log_offset : end - 20])
    disk.damage(FIRST_SEGMENT, end - 11, f"{total:010d}"[::-1].encode())
    assert _report(disk).faults == []
    disk.damage(FIRST_SEGMENT, disk.read(FIRST_SEGMENT).index(b"KEYS\x01k1") + 6, b"2")
    assert _report(disk).faults == [f"record at {send.log_offset} of orders: __CRC32# does not fit the record"]


def test_a_queue_entry_that_leads_elsewhere_is_a_fault() -> None:
    disk = _played()
    disk.damage(FIRST_QUEUE, 2 * queues.ENTRY_BYTES, queues.pack_entries([(1, 100, 0)]))
    report = _report(disk)
    assert report.fault_count == 1
    assert report.faults[0].startswith("orders/0: entry 2 names 100 bytes at 1,")


def test_a_missing_segment_is_a_fault() -> None:
    disk = _played()
    disk.unlink(f"{ROOT}/commitlog/{8192:020d}")
    assert any("should follow" in fault for fault in _report(disk).faults)


def test_after_a_kill_half_a_record_and_missing_entries_are_for_the_next_start() -> None:
    disk = _played(close=False)
    report = _report(disk)
    assert report.was_killed
    assert report.fault_count == 0
    assert report.entries + report.unfinished == report.records == 40
    log_end = report.end
    assert log_end is not None
    start = log_end - log_end % 8192
    disk.damage(f"{ROOT}/commitlog/{start:020d}", log_end - start, b"\x00\x00\x01\x90torn")
    torn = _report(disk)
    assert (torn.records, torn.fault_count) == (40, 0)
    assert str(log_end) in torn.tail


def test_records_of_a_deleted_topic_are_counted_apart() -> None:
    disk = _played()
    disk.remove_tree(f"{ROOT}/consumequeue/bills")
    report = _report(disk)
    assert report.fault_count == 0
    assert report.without_queue == report.by_topic["bills"] > 0


def test_a_folder_without_segments_is_no_store() -> None:
    with pytest.raises(StoreError, match="is /store a store"):
        _report(SimDisk())
