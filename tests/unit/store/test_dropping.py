from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gantry.store import queuefiles, queuetable
from gantry.store.coldrange import ColdRange
from gantry.store.disk import File
from gantry.store.dropping import HANG_S, INTERVAL_S
from gantry.store.queuetable import QueueTable
from gantry.store.settings import Flush
from gantry.store.store import Store
from testkit.simclock import SimClock
from testkit.smallstore import message, opened, small


def _aged(tmp_path: Path, clock: SimClock, segments: int) -> Store:
    store = opened(small(tmp_path, delete_hours=frozenset(), flush=Flush.SYNC), clock)
    while store.written.offset < segments * 16384:
        store.append([message(body=b"." * 4000)])
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (0, 0))
    return store


def _ticks(store: Store, clock: SimClock, seconds: float, step_s: float = 0.05) -> None:
    for _ in range(round(seconds / step_s)):
        clock.advance(round(step_s * 1000))
        for _ in store.tick(clock.now_ms()):
            pass


def test_segments_go_one_by_one_with_an_interval_and_ten_a_pass(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, 16)
    store.retention.drop_expired()
    starts, at_s = [], []
    for _ in range(60):
        before = store.stats().log_start
        _ticks(store, clock, 0.05)
        if store.stats().log_start != before:
            starts.append(store.stats().log_start - before)
            at_s.append(clock.monotonic())
        if len(starts) == 10:
            break
    assert starts == [16384] * 10, "one at a time"
    assert all(later - sooner >= INTERVAL_S * 0.99 for sooner, later in pairwise(at_s))
    assert store.retention.dropping.segments == 10
    _ticks(store, clock, 5)
    assert store.stats().log_start >= 15 * 16384, "who asked by hand gets all that is old enough"


def test_nothing_goes_without_its_trigger(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, 4)
    _ticks(store, clock, 30, 0.5)
    assert store.stats().log_start == 0


def test_a_segment_that_is_still_read_is_told_at_once_and_again_when_it_hangs(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, 4)
    told: list[tuple[str, int]] = []
    store.retention.dropping.listen(
        lambda start: told.append(("lingers", start)), lambda start: told.append(("hangs", start))
    )
    buffers = store.reader.fetch("orders", 0, 0, 1, 1 << 20, None).buffers
    assert len(bytes(buffers[0])) > 4000
    store.retention.drop_expired()
    _ticks(store, clock, 5)
    assert told == [("lingers", 0)] and store.retention.dropping.lingering == 1
    _ticks(store, clock, HANG_S, 1)
    assert told == [("lingers", 0), ("hangs", 0)]
    buffers.clear()
    _ticks(store, clock, 1)
    assert store.retention.dropping.lingering == 0
    _ticks(store, clock, HANG_S, 1)
    assert len(told) == 2, "who let go is not told on"


def test_by_hand_only_what_is_old_enough_goes_and_a_survey_says_so_before(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, 5)
    now_s = clock.now_ms() / 1000
    for number, path in enumerate(sorted((tmp_path / "commitlog").iterdir())):
        os.utime(path, (0, 0) if number < 2 else (now_s, now_s))
    store.retention.owe(lambda: 20_000)
    found = []
    store.retention.survey(store.durable_end, found.append)
    (survey,) = found
    assert survey is not None and (survey.expired, survey.going, survey.owed_from) == (2, 2, 20_000)
    assert len(survey.seen.modified_ms) >= 4 and store.stats().log_start == 0
    store.retention.drop_expired()
    _ticks(store, clock, 5)
    assert store.stats().log_start == 16384 and store.retention.waiting == 1
    assert store.retention.carry_below() == 2 * 16384


def test_many_queues_are_looked_at_in_slices_and_each_loses_its_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuetable, "_SLICE_COST", 200)
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    for _ in range(20):
        store.append([message(queue_id=queue_id) for queue_id in range(20)])
    store.append([message(topic="other", queue_id=queue_id) for queue_id in range(300)])
    _ticks(store, clock, 5, 1)
    slices = list(store._table.drop_before(store.written.offset))
    assert len(slices) >= 20 * 50 // 200
    paths = [path for found in slices for path in found]
    assert len(paths) == len(set(paths)) == 20 * 2, "two full files of each queue; the last one stays"
    assert max(map(len, slices)) <= 2 * (200 // 50 + 1)
    assert all(queue.first == 16 for queue in store._table if queue.topic == "orders")


class NoPlace:
    """A housekeeper whose queue is full."""

    def submit(self, *given: object) -> bool:
        return False


def test_old_queue_files_are_read_before_they_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    for _ in range(20):
        store.append([message()])
    _ticks(store, clock, 5, 1)
    dropping, read = store.retention.dropping, list[ColdRange]()

    def cold_range(file: File, memory: object, start: int, size: int) -> ColdRange | None:
        place = ColdRange(file, start, start + size)
        return None if place in read else place

    def reading(file: File, ranges: Sequence[tuple[int, int]]) -> Callable[[], None]:
        return lambda: read.append(ColdRange(file, *ranges[0]))

    monkeypatch.setattr(queuefiles, "cold_range", cold_range)
    monkeypatch.setattr("gantry.store.dropping.reading", reading)
    monkeypatch.setattr(store._log, "segments", Started(store._log.segments, store.written.offset))
    housekeeper, dropping._housekeeper = dropping._housekeeper, NoPlace()  # type: ignore[assignment]
    dropping.drop_derived()
    assert dropping._search is not None and not dropping._is_reading, "there was no place for the read"
    dropping._housekeeper = housekeeper
    for _ in range(100):
        dropping.tick()
    assert dropping._search is None and len(read) > 2
    assert [queue.first for queue in store._table] == [16]


class Started:
    """Segments of which the first are gone."""

    def __init__(self, segments: object, start: int) -> None:
        self.start = start
        self._segments = segments

    def __getattr__(self, name: str) -> object:
        return getattr(self._segments, name)


def test_a_table_for_which_the_housekeeper_has_no_place_is_made_later(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, 4)
    dropping, checkpoint = store.retention.dropping, store._checkpoint
    checkpoint.is_short, checkpoint.base_log_offset = True, -1
    housekeeper, dropping._housekeeper = dropping._housekeeper, NoPlace()  # type: ignore[assignment]
    dropping.drop_first()
    assert not dropping.is_saving
    dropping._housekeeper = housekeeper
    dropping.drop_first()
    assert not dropping.is_saving and dropping.segments == 0
    dropping.drop_first()
    assert dropping.segments == 1


def test_the_table_for_a_segment_is_made_in_slices_and_no_checkpoint_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuetable, "BASE_SLICE", 2)
    clock = SimClock()
    store = _aged(tmp_path, clock, 4)
    store.append([message(queue_id=queue_id) for queue_id in range(1, 8)])
    dropping, checkpoint = store.retention.dropping, store._checkpoint
    checkpoint.is_short, checkpoint.base_log_offset = True, -1
    dropping.drop_first()
    assert dropping.is_saving and dropping.is_pending
    clock.advance(60_000)
    slices = store.tick(clock.now_ms())
    assert not checkpoint.is_running, "its newer table would be replaced by this one"
    assert len(list(slices)) >= 2
    assert not dropping.is_saving
    dropping.drop_first()
    assert dropping.segments == 1


@pytest.mark.parametrize("queues", [1, 200])
def test_queues_are_looked_at_once_more_when_the_log_was_cut_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: int
) -> None:
    monkeypatch.setattr(queuetable, "_SLICE_COST", 200)
    store = opened(small(tmp_path), SimClock())
    store.append([message(queue_id=queue_id) for queue_id in range(queues)])
    dropping, drop_before, looked = store.retention.dropping, QueueTable.drop_before, 0

    def counted(table: QueueTable, start: int) -> Iterator[list[str]]:
        nonlocal looked
        looked += 1
        return drop_before(table, start)

    monkeypatch.setattr(QueueTable, "drop_before", counted)
    for _ in range(3 if queues > 1 else 2):
        dropping.drop_derived()
    for _ in range(2000):
        dropping.tick()
    assert looked == 2 and dropping._search is None
