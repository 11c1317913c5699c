from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gantry.errors import StoreError
from gantry.leaves import queues
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import RealDisk
from gantry.store.queuefiles import DamagedQueueError, QueueFiles
from gantry.store.queueloading import QueueLoader, cut_queue

ENTRIES = 8
FILLER = (0, 0x7FFFFFFF, 0)


def _stored(tmp_path: Path, count: int, first: int = 0) -> Path:
    """A queue of `count` records of 100 bytes each, 200 apart, in files."""
    files = QueueFiles(RealDisk(), ENTRIES, together_min=64)
    folder = tmp_path / "consumequeue" / "t" / "0"
    queue = ConsumeQueue("t", 0, str(folder), files, first)
    queue.put(queues.pack_entries([(200 * number, 100, number) for number in range(count)]), 200 * count)
    tail = queue.pending(1 << 60)
    assert tail is not None
    files.write([tail])
    return folder


def _load(tmp_path: Path, limit: int | None = 1 << 60, walk: bool = False, durable: int = 0) -> ConsumeQueue | None:
    files = QueueFiles(RealDisk(), ENTRIES, together_min=64)
    loader = QueueLoader(RealDisk(), str(tmp_path), files, limit, walk)
    assert loader.folders() == [("t", 0)]
    return loader.load("t", 0, durable)


def _poke(folder: Path, offset: int, *entry: int) -> None:
    path = folder / f"{offset // ENTRIES * ENTRIES * 20:020d}"
    data = bytearray(path.read_bytes())
    struct.pack_into(">qiq", data, offset % ENTRIES * 20, *entry)
    path.write_bytes(data)


@pytest.mark.parametrize("walk", [False, True])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 30, 41])
def test_the_end_of_a_queue_is_found(tmp_path: Path, count: int, walk: bool) -> None:
    _stored(tmp_path, count)
    queue = _load(tmp_path, None if walk else 1 << 60, walk)
    assert queue is not None
    assert (queue.first, queue.stored, queue.next, queue.log_end) == (0, count, count, 200 * count - 100)


@pytest.mark.parametrize("limit", [0, 1, 200, 201, 1600, 1601, 3999, 4000])
def test_behind_the_limit_nothing_is_believed(tmp_path: Path, limit: int) -> None:
    folder = _stored(tmp_path, 20)
    queue = _load(tmp_path, limit)
    expected = (limit + 199) // 200
    assert (queue.next if queue is not None else 0) == expected
    kept = [path.name for path in sorted(folder.iterdir())] if folder.exists() else []
    assert kept == [f"{number * 160:020d}" for number in range((expected + 7) // 8)]


@pytest.mark.parametrize("torn", [(0, 0, 0), (5, 0, 0), (-1, 100, 0), (1 << 50, 100, 0)])
def test_pages_of_a_cut_write_behind_the_limit_do_not_mislead(tmp_path: Path, torn: tuple[int, int, int]) -> None:
    folder = _stored(tmp_path, 20)
    for offset in (11, 14, 17):
        _poke(folder, offset, *torn)
    queue = _load(tmp_path, 2200)
    assert queue is not None and queue.next == 11


def test_fillers_behind_the_limit_do_not_mislead(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 20)
    for offset in (10, 11, 12, 13, 14, 15, 17, 18):
        _poke(folder, offset, *FILLER)
    queue = _load(tmp_path, 1900)
    assert queue is not None and queue.next == 10, "they came with entry 16, whose page was not synced"
    _stored(tmp_path, 20)
    for offset in (3, 4, 8, 9, 15, 16):
        _poke(folder, offset, *FILLER)
    queue = _load(tmp_path, 3401)
    assert queue is not None and queue.next == 18, "they came before entry 17, which was synced"


@pytest.mark.parametrize("durable", [0, 7, 8, 12, 19, 20])
def test_fillers_at_the_end_count_when_the_table_of_queues_knows_them(tmp_path: Path, durable: int) -> None:
    folder = _stored(tmp_path, 20)
    for offset in range(10, 20):
        _poke(folder, offset, *FILLER)
    queue = _load(tmp_path, 2000, durable=durable)
    assert queue is not None and (queue.next, queue.log_end) == (max(10, durable), 1900)


def test_a_table_of_queues_that_knows_more_than_there_is_counts_for_nothing(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 20)
    _poke(folder, 13, 0, 0, 0)
    queue = _load(tmp_path, 2000, durable=14)
    assert queue is not None and queue.next == 10


def test_a_queue_that_begins_later_keeps_its_place(tmp_path: Path) -> None:
    _stored(tmp_path, 5, first=19)
    queue = _load(tmp_path)
    assert queue is not None and (queue.first, queue.next) == (16, 24)
    assert queue.entry(18) is None and queue.entry(19) == (0, 100, 0)
    assert queue.min_offset(0) == 19


def test_an_empty_first_file_says_where_a_queue_goes_on(tmp_path: Path) -> None:
    files = QueueFiles(RealDisk(), ENTRIES, together_min=64)
    files.establish(f"{tmp_path}/consumequeue/t/0", 24)
    queue = _load(tmp_path)
    assert queue is not None and (queue.first, queue.next) == (24, 24)


def test_files_that_hold_nothing_are_removed(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 3)
    (folder / f"{0:020d}").write_bytes(bytes(160))
    assert _load(tmp_path) is None
    assert list(folder.iterdir()) == []


def test_a_missing_neighbour_is_damage(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 30)
    (folder / f"{160:020d}").unlink()
    with pytest.raises(DamagedQueueError, match="is not followed by its neighbour"):
        _load(tmp_path)


def test_a_short_file_of_ours_is_damage_and_one_of_rocketmqs_another_setting(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 3)
    path = folder / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(DamagedQueueError):
        _load(tmp_path)
    with pytest.raises(StoreError, match=r"set store.queue_file_entries"):
        _load(tmp_path, None)


def test_names_of_another_file_size_are_another_setting(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 3)
    (folder / f"{0:020d}").rename(folder / f"{100:020d}")
    with pytest.raises(StoreError, match="does not begin at a multiple of 160 bytes"):
        _load(tmp_path)


def test_walking_stops_at_the_first_hole_of_the_last_three_files(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 30)
    _poke(folder, 19, 0, 0, 0)
    queue = _load(tmp_path, None, walk=True)
    assert queue is not None and queue.next == 19
    assert [path.name for path in sorted(folder.iterdir())] == [f"{number * 160:020d}" for number in range(3)]


@pytest.mark.parametrize("log_end", [0, 100, 1500, 1700, 3899, 3900, 5000])
def test_cutting_leaves_zeros_behind_the_end(tmp_path: Path, log_end: int) -> None:
    folder = _stored(tmp_path, 20)
    files = QueueFiles(RealDisk(), ENTRIES, together_min=64)
    queue = QueueLoader(RealDisk(), str(tmp_path), files, None, False).load("t", 0)
    assert queue is not None
    cut_queue(RealDisk(), queue, files, log_end)
    keep = sum(1 for number in range(20) if 200 * number + 100 <= log_end)
    assert queue.next == queue.stored == keep
    data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    assert not any(data[keep * 20 :]) and len(data) == max(160, (keep + 7) // 8 * 160)
    if keep:
        assert queue.log_end == 200 * (keep - 1) + 100
