from __future__ import annotations

from pathlib import Path

from gantry.leaves import keys as index_keys
from gantry.leaves import records
from gantry.store.disk import RealDisk
from gantry.store.indexfile import Hit
from gantry.store.keyindex import KeyIndex, write_indexes
from gantry.store.recoverypoint import IndexState
from testkit.simclock import SimClock


def _entry(number: int, keys: bytes = b"", unique: bytes = b"", sys_flag: int = 0, store_ms: int = 0) -> records.Entry:
    stored_ms = store_ms or 1_700_000_000_000 + number
    return records.Entry(number * 100, 100, "t", 0, number, 0, stored_ms, sys_flag, 0, unique, keys, b"")


def _index(tmp_path: Path, entries: int = 20) -> KeyIndex:
    (tmp_path / "gantry").mkdir(exist_ok=True)
    return KeyIndex(RealDisk(), str(tmp_path), SimClock(), 8, entries)


def _checkpoint(index: KeyIndex, tmp_path: Path) -> None:
    frozen = index.freeze()
    write_indexes(RealDisk(), str(tmp_path), [writes for _, writes in frozen])
    index.thaw(frozen)


def _find(index: KeyIndex, key: str) -> list[int]:
    return [hit.log_offset for hit in index.walk("t", key, 0, 1 << 50) if isinstance(hit, Hit)]


def test_a_record_is_found_by_its_unique_key_and_each_of_its_keys() -> None:
    assert index_keys.keys_of(_entry(1, b"a  b ", b"ID")) == [b"ID", b"a", b"b"]
    assert index_keys.keys_of(_entry(1)) == []
    assert index_keys.keys_of(_entry(1, b"a", b"ID", sys_flag=4)) == [b"ID", b"a"], "PREPARED is indexed"
    assert index_keys.keys_of(_entry(1, b"a", b"ID", sys_flag=12)) == [], "ROLLBACK is not"


def test_what_is_dispatched_is_found_at_once_and_stored_when_flushed(tmp_path: Path) -> None:
    index = _index(tmp_path)
    index.add([_entry(number, b"k", b"id%d" % number) for number in range(4)])
    assert _find(index, "k") == [300, 200, 100, 0] and _find(index, "id2") == [200]
    index.absorb(200)
    assert index.first_pending == 200 and index.position == 101
    assert _find(index, "k") == [300, 200, 100, 0]
    assert index.freeze()[0][0].count == 5, "two records of two keys each"


def test_records_that_are_in_are_not_added_again(tmp_path: Path) -> None:
    index = _index(tmp_path)
    entries = [_entry(number, b"k") for number in range(4)]
    index.add(entries)
    index.absorb_all(400)
    index.add(entries)
    index.absorb_all(400)
    assert _find(index, "k") == [300, 200, 100, 0]


def test_a_full_file_is_followed_by_a_new_one_with_a_later_name(tmp_path: Path) -> None:
    index = _index(tmp_path, entries=6)
    index.add([_entry(number, b"k") for number in range(12)])
    index.absorb_all(1200)
    _checkpoint(index, tmp_path)
    names = [path.name for path in sorted((tmp_path / "index").iterdir())]
    assert len(names) == 3 == len(set(names))
    assert _find(index, "k") == [100 * number for number in range(11, -1, -1)]
    again = _index(tmp_path, entries=6)
    assert again.load_ours(index.state)
    assert _find(again, "k") == [100 * number for number in range(11, -1, -1)]


def test_after_a_clock_that_went_back_names_go_on_behind_the_last_one(tmp_path: Path) -> None:
    index = _index(tmp_path, entries=6)
    ahead_ms = SimClock().now_ms() + 8 * 3600 * 1000  # a folder of another time zone
    for number in range(18):
        index.add([_entry(number, b"k", store_ms=ahead_ms if number < 6 else number)])
        index.absorb_all(1 << 60)
    _checkpoint(index, tmp_path)
    names = [path.name for path in sorted((tmp_path / "index").iterdir())]
    first = int(names[0])
    assert [int(name) for name in names] == [first + number for number in range(len(names))] and len(names) >= 3
    assert {len(name) for name in names} == {17}
    again = _index(tmp_path, entries=6)
    assert again.load_ours(index.state) and len(again._files) == len(names)


def test_files_behind_the_recovery_point_are_removed_and_missing_ones_noticed(tmp_path: Path) -> None:
    index = _index(tmp_path, entries=6)
    index.add([_entry(number, b"k") for number in range(5)])
    index.absorb_all(500)
    _checkpoint(index, tmp_path)
    state = index.state
    index.add([_entry(number, b"k") for number in range(5, 12)])
    index.absorb_all(1200)
    _checkpoint(index, tmp_path)
    again = _index(tmp_path, entries=6)
    assert again.load_ours(state)
    assert len(list((tmp_path / "index").iterdir())) == 1 and _find(again, "k") == [400, 300, 200, 100, 0]
    assert not _index(tmp_path, entries=6).load_ours(state._replace(files=2))
    assert _index(tmp_path, entries=6).load_ours(IndexState())
    assert list((tmp_path / "index").iterdir()) == []


def test_after_rocketmqs_crash_files_newer_than_its_checkpoint_go(tmp_path: Path) -> None:
    index = _index(tmp_path, entries=6)
    index.add([_entry(number, b"k", store_ms=1_700_000_000_000 + 1000 * number) for number in range(8)])
    index.absorb_all(800)
    _checkpoint(index, tmp_path)
    again = _index(tmp_path, entries=6)
    again.load_foreign(1_700_000_004_000)
    assert again.end_log == 401
    assert len(list((tmp_path / "index").iterdir())) == 1


def test_a_record_of_which_rocketmq_indexed_one_key_gets_the_other(tmp_path: Path) -> None:
    index = _index(tmp_path)
    half, whole = _entry(3, b"", b"ID"), _entry(3, b"k", b"ID")
    index.add([_entry(2, b"k", b"ID"), half])
    index.absorb_all(400)
    _checkpoint(index, tmp_path)
    again = _index(tmp_path)
    again.load_foreign(1 << 60)
    again._in_doubt = again.position = 300
    again.add([whole])
    again.absorb_all(400)
    hits = [
        hit.log_offset
        for file in again._files
        for key in ("ID", "k")
        for hit in file.find(index_keys.hash_of("t", key.encode()), 0, 1 << 50)
    ]
    assert hits == [300, 200, 300, 200]


def test_retention_forgets_files_and_leaves_unlinking_to_the_checkpoint(tmp_path: Path) -> None:
    index = _index(tmp_path, entries=6)
    index.add([_entry(number, b"k") for number in range(12)])
    index.absorb_all(1200)
    _checkpoint(index, tmp_path)
    index.drop_before(1000)
    assert len(index.dropped) == 2 and _find(index, "k") == [1100, 1000]
    assert len(list((tmp_path / "index").iterdir())) == 3
    assert index.state.files == 1
