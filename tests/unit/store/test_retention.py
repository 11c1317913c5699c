from __future__ import annotations

import os
from pathlib import Path

import pytest

from gantry.errors import DiskFullError
from gantry.store.retention import DiskView, count_to_drop
from gantry.store.settings import StoreSettings
from gantry.store.store import Store
from testkit.keyed import query
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small

HOUR_MS = 3_600_000
NOW = 1_000 * HOUR_MS


@pytest.mark.parametrize(
    ("used", "ages_h", "is_hour", "forcibly", "count"),
    [
        (0.1, [100, 90, 80], False, True, 0),
        (0.1, [100, 90, 80], True, True, 3),
        (0.1, [100, 71, 80], True, True, 1),
        (0.1, [71, 100], True, True, 0),
        (0.76, [100, 71], False, True, 1),
        (0.851, [1, 0, 0], False, True, 1),
        (0.858, [1, 0, 0], False, True, 2),
        (0.99, [1, 0, 0], False, True, 3),
        (0.851, [100, 90, 0], False, True, 2),
        (0.86, [], False, True, 0),
        (0.86, [1, 0], False, False, 0),
        (0.86, [100, 0], False, False, 1),
        (0.1, [], True, True, 0),
    ],
)
def test_what_goes(used: float, ages_h: list[int], is_hour: bool, forcibly: bool, count: int) -> None:
    # A disk of 200 segments: half a percent each.
    seen = DiskView(used, tuple(NOW - age * HOUR_MS for age in ages_h), 200 << 30)
    assert count_to_drop(seen, NOW, is_hour, StoreSettings("/s", clean_forcibly=forcibly)) == count


def _aged(tmp_path: Path, clock: SimClock, hours: int = 100) -> Store:
    """A store of five segments whose files are old."""
    store = opened(small(tmp_path, delete_hours=frozenset(range(24)), flush_full_ms=1000), clock)
    for number in range(70):
        store.append([message(queue_id=number % 2, body=b"%d" % number + b"." * 900, keys="k")])
    for path in (tmp_path / "commitlog").iterdir():
        at = clock.now_ms() / 1000 - hours * 3600
        os.utime(path, (at, at))
    return store


def _pass(store: Store, clock: SimClock) -> None:
    for _ in range(12):
        clock.advance(11_000)
        store.tick(clock.now_ms())


def _segments(tmp_path: Path) -> list[int]:
    return [int(path.name) for path in sorted((tmp_path / "commitlog").iterdir())]


def test_old_segments_go_with_the_queue_and_index_files_that_point_there(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    assert len(_segments(tmp_path)) >= 5
    _pass(store, clock)
    start = store.stats().log_start
    assert start > 0 and _segments(tmp_path)[0] == start
    low, high = store.queue_range("orders", 0) or (0, 0)
    assert 0 < low < high == 35
    assert bodies(store)[0].startswith(b"%d." % (2 * low))
    assert int(min(path.name for path in (tmp_path / "consumequeue" / "orders" / "0").iterdir())) > 0
    hits = query(store.reader, "orders", "k", 64, 0, 1 << 50)
    assert 0 < len(hits) <= 70 - 2 * low + 1
    store.close()
    again = opened(store.settings, clock)
    assert again.queue_range("orders", 0) == (low, high) and again.report.rebuilt == []


def test_the_segment_that_is_written_to_stays_whatever_its_age(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    _pass(store, clock)
    _pass(store, clock)
    assert store.stats().log_start <= store.written.offset < store.stats().log_start + 3 * 16384
    store.append([message(queue_id=0, body=b"fresh")])
    assert bodies(store)[-1] == b"fresh"


def test_young_segments_stay(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock, hours=71)
    _pass(store, clock)
    assert store.stats().log_start == 0


def test_what_is_still_owed_stays(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    store.retention.owe(lambda: None)
    store.retention.owe(lambda: 16384 + 5)
    _pass(store, clock)
    assert store.stats().log_start == 16384


def test_bytes_that_wait_in_a_socket_outlive_their_segment(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    buffers = store.reader.fetch("orders", 0, 0, 3, 1 << 20, None).buffers
    before = [bytes(buffer) for buffer in buffers]
    _pass(store, clock)
    assert store.stats().log_start > 0 and [bytes(buffer) for buffer in buffers] == before


def test_a_crash_between_removals_leaves_a_store_that_opens(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    _pass(store, clock)
    ends = store.queue_range("orders", 0)
    crash(store)
    again = opened(store.settings, clock)
    assert again.queue_range("orders", 0) == ends


def test_above_the_last_limit_nothing_is_written_until_there_is_room() -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=1 << 20)
    store = opened(small("/s", disk_used_refuse=0.5), clock, disk=disk)  # type: ignore[arg-type]
    store.append([message(body=b"kept")])
    filler = disk.open("/other", create=True)
    filler.allocate(700 << 10)
    _pass(store, clock)
    with pytest.raises(DiskFullError, match=r"the disk is \d\d% full"):
        store.append([message()])
    assert bodies(store) == [b"kept"]
    disk.quota_bytes *= 10
    clock.advance(1_001)
    store.tick(clock.now_ms())
    store.append([message()])


class _Full:
    """A disk of which this share is in use, whatever is removed."""

    def __init__(self, used: float) -> None:
        self.used = used

    def usage(self, root: str) -> tuple[int, int]:
        return 1_000_000, int(1_000_000 * (1 - self.used))

    def modified_ms(self, path: str) -> int:
        return 1 << 60


@pytest.mark.parametrize(("share", "segments"), [(1.0, 3), (0.5, 3)])
def test_forced_removal_pauses_when_what_it_removes_is_copied_to_the_logs_end(
    tmp_path: Path, share: float, segments: int
) -> None:
    clock = SimClock()
    store = opened(small(tmp_path, flush_full_ms=1000, clean_forcibly=True), clock)
    for number in range(70):
        store.append([message(body=b"%d" % number + b"." * 900)])
    store.retention._disk = _Full(0.87)  # type: ignore[assignment]
    owed = 0

    def first_owed() -> int | None:
        return owed

    store.retention.owe(first_owed)
    dropped = 0
    for _ in range(50):
        for _ in range(8):
            store.append([message(body=b"." * 900)])
        limit, before = store.retention.carry_below(), store.stats().log_start
        for _ in range(int((max(limit, owed) - owed) * share / 1000)):
            store.append([message(body=b"." * 900)], is_owed=True)
        owed = max(owed, limit)
        clock.advance(2000)
        store.tick(clock.now_ms())
        dropped += (store.stats().log_start - before) // 16384
    assert (dropped <= segments) == (share == 1.0), dropped
    clock.advance(600_000)
    store.tick(clock.now_ms())
    store.tick(clock.now_ms())
    assert store.retention.carry_below() > store.stats().log_start, "it is tried again"


def test_a_look_for_which_the_housekeeper_has_no_place_is_made_later(tmp_path: Path) -> None:
    clock = SimClock()
    store = _aged(tmp_path, clock)
    housekeeper = store.retention._housekeeper
    submit = housekeeper.submit
    housekeeper.submit = lambda *_, **__: False  # type: ignore[method-assign]
    clock.advance(11_000)
    store.retention.tick(store.durable_end, clock.now_ms())
    housekeeper.submit = submit  # type: ignore[method-assign]
    _pass(store, clock)
    assert store.stats().log_start > 0
