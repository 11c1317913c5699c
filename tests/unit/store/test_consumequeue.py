from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.leaves import queues
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import RealDisk
from gantry.store.queuefiles import DamagedQueueError, QueueFiles

ENTRIES = 8


def _queue(tmp_path: Path, first: int = 0) -> tuple[ConsumeQueue, QueueFiles]:
    files = QueueFiles(RealDisk(), ENTRIES, together_min=64)
    return ConsumeQueue("t", 0, f"{tmp_path}/t/0", files, first), files


def _put(queue: ConsumeQueue, count: int, log_offset: int | None = None) -> None:
    begin = queue.log_end if log_offset is None else log_offset
    entries = [(begin + 100 * number, 100, number) for number in range(count)]
    queue.put(queues.pack_entries(entries), begin + 100 * count)


def _checkpoint(queue: ConsumeQueue, files: QueueFiles, log_end: int | None = None) -> None:
    tail = queue.pending(queue.log_end if log_end is None else log_end)
    assert tail is not None
    files.write([tail])
    queue.settle(tail)


def test_entries_are_read_from_memory_and_then_from_files(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 20)
    before = [queue.entry(offset) for offset in range(20)]
    _checkpoint(queue, files)
    _put(queue, 3)
    assert [queue.entry(offset) for offset in range(20)] == before
    assert queue.stored == 20 and queue.next == 23
    assert queue.entry(20) == (2000, 100, 0) and queue.entry(23) is None and queue.entry(-1) is None


def test_files_have_rocketmqs_names_sizes_and_bytes(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 20)
    _checkpoint(queue, files)
    folder = tmp_path / "t" / "0"
    assert [path.name for path in sorted(folder.iterdir())] == [f"{number * 160:020d}" for number in range(3)]
    assert {path.stat().st_size for path in folder.iterdir()} == {160}
    data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    assert struct.unpack_from(">qiq", data, 19 * 20) == (1900, 100, 19)
    assert not any(data[20 * 20 :])


def test_only_what_is_flushed_in_the_log_goes_into_the_files(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 10)
    _checkpoint(queue, files, log_end=599)
    assert queue.stored == 5
    assert queue.pending(599) is None
    assert queue.reach(700) == 7


def test_a_queue_that_begins_in_the_middle_of_a_file_is_filled_before_it(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path, first=11)
    _put(queue, 2)
    _checkpoint(queue, files)
    data = (tmp_path / "t" / "0" / f"{160:020d}").read_bytes()
    assert [struct.unpack_from(">qiq", data, at * 20) for at in range(3)] == [(0, 0x7FFFFFFF, 0)] * 3
    assert struct.unpack_from(">qiq", data, 60) == (0, 100, 0)


def test_the_minimum_follows_the_log(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 20)
    _checkpoint(queue, files)
    _put(queue, 4)
    assert queue.min_offset(0) == 0
    assert queue.min_offset(1) == 1
    assert queue.min_offset(1000) == 10
    assert queue.min_offset(2100) == 21
    assert queue.min_offset(99999) == 24
    _put(queue, 1, 100_000)
    assert queue.min_offset(99999) == 24


def test_files_whose_records_are_gone_are_dropped_but_never_the_last(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 20)
    _checkpoint(queue, files)
    assert queue.drop_before(700) == []
    assert queue.drop_before(800) == [0]
    assert queue.first == 8 and queue.entry(7) is None and queue.entry(8) is not None
    assert queue.drop_before(10**9) == [8]
    assert queue.min_offset(10**9) == 20


FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=8),
    st.integers(0, 8000),
    st.integers(0, 100),
)
def test_fillers_hide_no_entry_from_a_search(runs: list[tuple[bool, int]], log_offset: int, stored: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue, files = _queue(Path(folder))
        places: list[int | None] = []
        for is_filler, count in runs:
            if is_filler:
                queue.put(FILLER * count, queue.log_end)
            else:
                _put(queue, count)
            places += [None] * count if is_filler else [queue.log_end - 100 * (count - n) for n in range(count)]
        real = [offset for offset, place in enumerate(places) if place is not None]
        behind = [offset for offset in real if places[offset] >= log_offset]  # type: ignore[operator]
        assert queue.reach(log_offset) == max(
            (n for n in range(len(places) + 1) if all(p is None or p + 100 <= log_offset for p in places[:n])),
            default=0,
        )
        tail = queue.pending(100 * stored)
        if tail is not None:
            files.write([tail])
            queue.settle(tail)
        assert queue.search(0, log_offset) == (behind[0] if behind else queue.next)
        files.close()


def test_a_file_that_shrank_is_damage(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 3)
    _checkpoint(queue, files)
    path = tmp_path / "t" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DamagedQueueError, match="has 100 bytes, expected 160"):
        queue.entry(0)


def test_writing_a_tail_again_changes_nothing(tmp_path: Path) -> None:
    queue, files = _queue(tmp_path)
    _put(queue, 12)
    tail = queue.pending(queue.log_end)
    assert tail is not None
    files.write([tail])
    before = {path.name: path.read_bytes() for path in (tmp_path / "t" / "0").iterdir()}
    files.write([tail])
    assert {path.name: path.read_bytes() for path in (tmp_path / "t" / "0").iterdir()} == before
