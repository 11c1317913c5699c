from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gantry.errors import StoreError
from gantry.leaves import hashes, keys
from gantry.store.disk import RealDisk
from gantry.store.indexfile import Hit, IndexFile, write_index
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.smallstore import query_index

SLOTS, ENTRIES = 4, 50


def _index(tmp_path: Path) -> IndexFile:
    (tmp_path / "gantry").mkdir(exist_ok=True)
    (tmp_path / "index").mkdir(exist_ok=True)
    return IndexFile(f"{tmp_path}/index/20260101000000000", SLOTS, ENTRIES)


def _write(index: IndexFile, tmp_path: Path) -> None:
    writes = index.freeze()
    assert writes is not None
    write_index(RealDisk(), str(tmp_path), writes)
    index.thaw(writes, RealDisk())


def _put(index: IndexFile, key: str, log_offset: int, store_ms: int = 1_000_000) -> None:
    index.put(keys.FOUND.pack(hashes.index_hash(f"t#{key}"), log_offset, store_ms))


def _find(index: IndexFile, key: str, begin_ms: int = 0, end_ms: int = 1 << 50) -> list[int]:
    hits = index.find(hashes.index_hash(f"t#{key}"), begin_ms, end_ms)
    return [hit.log_offset for hit in hits if isinstance(hit, Hit)]


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(10):
        _put(index, f"k{number % 3}", 100 * number, 1_000_000 + 1500 * number)
    _write(index, tmp_path)
    data = Path(index.path).read_bytes()
    assert len(data) == 40 + 4 * SLOTS + 20 * ENTRIES
    begin_ms, end_ms, begin, end, used, count = struct.unpack_from(">qqqqii", data)
    assert (begin_ms, end_ms, begin, end, count) == (1_000_000, 1_013_500, 0, 901, 11)
    assert used == len({hashes.index_hash(f"t#k{number}") % SLOTS for number in range(3)})
    assert struct.unpack_from(">iqii", data, 40 + 4 * SLOTS) == (0, 0, 0, 0), "entry 0 is never used"
    assert struct.unpack_from(">iqi", data, 40 + 4 * SLOTS + 20 * 4)[1:] == (300, 4), "seconds since the first"
    assert query_index(tmp_path, SLOTS, "t#k1") == [700, 400, 100]


def test_keys_are_found_before_during_and_after_a_checkpoint(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(6):
        _put(index, "a", number)
    assert _find(index, "a") == [5, 4, 3, 2, 1, 0]
    writes = index.freeze()
    assert writes is not None
    _put(index, "a", 6)
    assert _find(index, "a") == [6, 5, 4, 3, 2, 1, 0]
    write_index(RealDisk(), str(tmp_path), writes)
    index.thaw(writes, RealDisk())
    assert _find(index, "a") == [6, 5, 4, 3, 2, 1, 0]
    _write(index, tmp_path)
    assert query_index(tmp_path, SLOTS, "t#a") == [6, 5, 4, 3, 2, 1, 0]


def test_a_checkpoint_that_failed_is_repeated_with_what_came_since(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, "a", 1)
    assert index.freeze() is not None
    _put(index, "a", 2)
    _write(index, tmp_path)
    assert query_index(tmp_path, SLOTS, "t#a") == [2, 1]


def test_time_bounds(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(10):
        _put(index, "a", number, 1_000_000 + 1000 * number)
    assert _find(index, "a", 1_003_000, 1_005_000) == [5, 4, 3]
    assert not index.overlaps(0, 999_999)
    assert index.overlaps(1_009_500, 1 << 50)


def test_slots_that_a_crash_left_ahead_of_the_count_are_followed_back(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(4):
        _put(index, "ab"[number % 2], number)
    _write(index, tmp_path)
    count = index.count
    for number in range(4, 10):
        _put(index, "ab"[number % 2], number)
    _write(index, tmp_path)
    # The recovery file knows only the first checkpoint.
    again = _index(tmp_path)
    again.load(RealDisk())
    assert again.step_back(count)
    assert _find(again, "a") == [2, 0] and _find(again, "b") == [3, 1]
    # The log is dispatched again: the same entries with the same numbers.
    for number in range(4, 10):
        _put(again, "ab"[number % 2], number)
    before = Path(index.path).read_bytes()
    _write(again, tmp_path)
    assert Path(index.path).read_bytes()[40:] == before[40:]
    assert _find(again, "a") == [8, 6, 4, 2, 0]


def test_a_header_that_never_counted_so_far_is_damage(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, "a", 1)
    _write(index, tmp_path)
    again = _index(tmp_path)
    again.load(RealDisk())
    assert not again.step_back(5) and not again.step_back(1)


def test_a_file_of_another_size_says_what_to_do(tmp_path: Path) -> None:
    index = _index(tmp_path)
    Path(index.path).write_bytes(bytes(100))
    with pytest.raises(StoreError, match=r"has 100 bytes, expected 1056; set store\.index_slots"):
        index.load(RealDisk())


def test_chains_through_garbage_end(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(5):
        _put(index, "a", number)
    _write(index, tmp_path)
    data = bytearray(Path(index.path).read_bytes())
    struct.pack_into(">i", data, 40 + 4 * SLOTS + 20 * 3 + 16, 49)
    struct.pack_into(">i", data, 40, -7)
    Path(index.path).write_bytes(data)
    again = _index(tmp_path)
    again.load(RealDisk())
    assert _find(again, "a") in ([4, 3, 2], [])


def _after_rocketmqs_start(data: bytearray, log: list[tuple[str, int]]) -> None:
    """Add what RocketMQ's broker adds to a file after a crash (`IndexService.buildIndex`, `IndexFile.putKey`)."""
    for key, log_offset in log:
        begin_ms, _, begin, end, used, count = struct.unpack_from(">qqqqii", data)
        if log_offset < end:
            continue
        hashed = hashes.index_hash(f"t#{key}")
        slot_at, entry_at = 40 + 4 * (hashed % SLOTS), 40 + 4 * SLOTS + 20 * count
        (previous,) = struct.unpack_from(">i", data, slot_at)
        previous = previous if 0 < previous <= count else 0
        struct.pack_into(">iqii", data, entry_at, hashed, log_offset, 0, previous)
        struct.pack_into(">i", data, slot_at, count)
        struct.pack_into(">qqqqii", data, 0, begin_ms or 1_000_000, 1_000_000, begin, log_offset, used, count + 1)


@pytest.mark.parametrize("at_once", [5, 20])
def test_killed_between_two_writes_of_a_checkpoint_rocketmqs_broker_still_finds_every_key(
    tmp_path: Path, at_once: int
) -> None:
    log = [(f"k{number}", 100 * number) for number in range(20)]
    operation, fired = 0, True
    while fired:
        operation += 1
        disk, faults = SimDisk(), Faults(power_cut_at=operation)
        disk.make_folders("/s/index")
        disk.make_folders("/s/gantry")
        index = IndexFile("/s/index/20260101000000000", SLOTS, ENTRIES)
        disk.faults = faults
        try:
            for first in range(0, len(log), at_once):
                for key, log_offset in log[first : first + at_once]:
                    _put(index, key, log_offset)
                writes = index.freeze()
                assert writes is not None
                write_index(disk, "/s", writes)
                index.thaw(writes, disk)
        except PowerCut:
            pass  # a process that is killed leaves to its successor what it wrote
        fired = faults.fired
        data = bytearray(disk.files().get(index.path, bytes(index.file_bytes)))
        if not struct.unpack_from(">i", data, 36)[0]:
            struct.pack_into(">i", data, 36, 1)
        _after_rocketmqs_start(data, log)
        (tmp_path / "index").mkdir(exist_ok=True)
        (tmp_path / "index" / "20260101000000000").write_bytes(data)
        for key, log_offset in log:
            assert set(query_index(tmp_path, SLOTS, f"t#{key}")) == {log_offset}, (key, operation, faults.trace[-1])
