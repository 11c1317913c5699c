"""What has to be read before queue entries and records are looked at: asked for, waited for, and bounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gantry.store import coldrange, queuefiles
from gantry.store.coldplaces import begins_at, cold_at, stored_ms_if_read
from gantry.store.coldrange import ColdRange
from gantry.store.disk import File
from gantry.store.fetched import FetchStatus
from gantry.store.keysearch import searched
from gantry.store.store import Store
from gantry.store.timesearch import offset_by_time, store_time
from testkit.smallstore import bodies, message, opened, small

QUEUE = "orders", 0
COUNT = 30


class Files:
    """Which places of queue files were brought in; each other one is on the disk only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
        self.brought: list[tuple[int, int]] = []
        self.waiting: list[Callable[[], None]] | None = None  # None: what is asked for is there at once
        self.stays = True
        queue = store._table.get(*QUEUE)
        assert queue is not None and queue.stored == COUNT
        queue.min_offset(0)
        monkeypatch.setattr(queuefiles, "cold_range", self.cold_range)
        monkeypatch.setattr(store, "bring_in", self.bring_in)

    def cold_range(self, file: File, memory: object, start: int, size: int) -> ColdRange | None:
        is_in = any(begin <= start and start + size <= end for begin, end in self.brought)
        return None if is_in and self.stays else ColdRange(file, start, start + size)

    def bring_in(self, place: object, done: Callable[[], None]) -> None:
        def read() -> None:
            if isinstance(place, ColdRange):
                self.brought.append((place.start, place.end))
            done()

        if self.waiting is None:
            read()
        else:
            self.waiting.append(read)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store whose entries are all in files of ten."""
    found = opened(small(tmp_path, queue_file_entries=10))
    for number in range(COUNT):
        found.append([message(body=b"%d" % number)])
    found.close()
    return opened(small(tmp_path, queue_file_entries=10))


@pytest.fixture
def files(store: Store, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch, store)


def test_a_fetch_says_which_entries_it_needs_and_goes_on_when_they_are_there(store: Store, files: Files) -> None:
    found = store.reader.fetch(*QUEUE, 12, 4, 1 << 20, None, may_wait=False)
    assert found.is_cold and not found.places and isinstance(found.cold, ColdRange)
    assert (found.cold.start, found.cold.end) == (2 * 20, 6 * 20)
    store.bring_in(found.cold, lambda: None)
    found = store.reader.fetch(*QUEUE, 12, 4, 1 << 20, None, may_wait=False)
    assert (found.status, found.is_cold, found.next_offset) == (FetchStatus.FOUND, False, 16)


def test_entries_that_wait_for_their_file_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(small(tmp_path, queue_file_entries=10))
    store.append([message(), message()])
    monkeypatch.setattr(queuefiles, "cold_range", lambda *given: pytest.fail("no file is asked"))
    assert not store.reader.fetch(*QUEUE, 0, 4, 1 << 20, None, may_wait=False).is_cold
    assert cold_at(store, *QUEUE, 0, 2) is None


async def test_searches_read_no_entry_that_was_not_brought_in(store: Store, files: Files) -> None:
    plain = [store.reader.store_time(*QUEUE, offset) for offset in range(COUNT)]
    assert [await searched(store_time(store, *QUEUE, offset)) for offset in range(COUNT)] == plain
    files.brought.clear()
    at_ms = plain[COUNT - 1]
    assert at_ms is not None
    expected = store.reader.offset_by_time(*QUEUE, at_ms)
    assert await searched(offset_by_time(store, *QUEUE, at_ms)) == expected
    assert files.brought


async def test_a_search_ends_also_where_nothing_stays_in_memory(store: Store, files: Files) -> None:
    files.stays = False
    assert await searched(store_time(store, *QUEUE, 7)) == store.reader.store_time(*QUEUE, 7)
    assert len(files.brought) == 1


def test_who_does_not_wait_gets_nothing_until_the_entry_is_there(store: Store, files: Files) -> None:
    files.waiting = []
    steps = stored_ms_if_read(store, *QUEUE, 7)
    next(steps)(lambda: None)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value is None
    files.waiting.pop()()
    with pytest.raises(StopIteration) as ended:
        next(stored_ms_if_read(store, *QUEUE, 7))
    assert ended.value.value == store.reader.store_time(*QUEUE, 7)


def test_retention_keeps_all_until_it_is_known_where_a_record_begins(store: Store, files: Files) -> None:
    files.waiting = []
    assert begins_at(store, *QUEUE, 9) == store.reader.log_start
    files.waiting.pop()()
    entry = store.reader.entry(*QUEUE, 9)
    assert entry is not None and begins_at(store, *QUEUE, 9) == entry[0] > store.reader.log_start
    assert begins_at(store, *QUEUE, COUNT) is None


def test_the_search_for_old_queue_files_tells_each_place_before_it_looks(store: Store, files: Files) -> None:
    table, entry = store._table, store.reader.entry(*QUEUE, 25)
    assert entry is not None
    read, paths = table.files.look, list[str]()
    looks: list[object] = []

    def look(call: Callable[[], object], brought: set[ColdRange]) -> object:
        looks.append(brought)
        return read(call, brought)

    table.files.look = look  # type: ignore[method-assign, assignment]
    for found in table.drop_before(entry[0]):
        if isinstance(found, ColdRange):
            store.bring_in(found, lambda: None)
        else:
            paths += found
    assert len(paths) == 2 and files.brought and looks
    assert bodies(store, start=25) == [b"%d" % number for number in range(25, COUNT)]


def test_a_look_that_is_broken_off_leaves_no_trace(store: Store, files: Files) -> None:
    cold = store.reader.look(partial(store.reader.entry, *QUEUE, 3), ())
    assert isinstance(cold, ColdRange)
    assert store.reader.entry(*QUEUE, 3) is not None, "outside of a look the disk is waited for"


def test_where_the_kernel_tells_nothing_no_entry_counts_as_cold(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = store._table.get(*QUEUE)
    assert queue is not None and queue.stored == COUNT
    monkeypatch.setattr(coldrange, "COMPILED", True)
    monkeypatch.setattr(coldrange, "_IS_TOLD", False, raising=False)
    monkeypatch.setattr(coldrange, "in_memory", lambda *given: False, raising=False)
    reader = store.reader
    assert all(reader.cold_entries(*QUEUE, offset, 1) is None for offset in range(COUNT))
    entry = reader.entry(*QUEUE, COUNT - 1)
    assert entry is not None and entry[0] > reader.log_start
    assert begins_at(store, *QUEUE, COUNT - 1) == entry[0], "retention waits for nothing"
