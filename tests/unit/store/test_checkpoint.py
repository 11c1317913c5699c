from __future__ import annotations

from pathlib import Path

from gantry.store import javacheckpoint, queuebase, recoverypoint
from gantry.store.background import InlineBackground
from gantry.store.checkpoint import StoreTimes
from gantry.store.disk import RealDisk
from gantry.store.recovery import Start
from gantry.store.store import Store
from testkit.keyed import query
from testkit.simclock import SimClock
from testkit.simdisk import Faults, SimDisk
from testkit.smallstore import crash, message, opened, read_queue, small


def test_times_by_log_offset() -> None:
    times = StoreTimes(5)
    assert times.at(0) == 5
    times.note(100, 10)
    times.note(200, 10)
    times.note(300, 20)
    assert [times.at(offset) for offset in (50, 199, 200, 299, 300, 999)] == [5, 5, 10, 10, 20, 20]


def test_a_checkpoint_comes_about_once_a_second_and_only_when_something_is_new(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path, flush_full_ms=1, flush_interval_ms=1), clock)
    generations = []
    for number in range(30):
        if number < 15:
            store.append([message()])
        clock.advance(200)
        store.tick(clock.now_ms())
        point = recoverypoint.load(RealDisk(), str(tmp_path))
        assert point is not None and point.dispatched <= point.flushed <= store.flushed.offset
        generations.append(point.generation)
    assert 3 <= generations[14] - generations[0] <= 4
    assert generations[-1] <= generations[14] + 2
    assert point.dispatched == store.written.offset
    assert point.java == javacheckpoint.load(RealDisk(), str(tmp_path)).longs  # type: ignore[union-attr]


def test_the_order_of_what_is_written() -> None:
    clock, disk = SimClock(), SimDisk()
    store = opened(small("/s"), clock, disk=disk)  # type: ignore[arg-type]
    store.append([message(keys="k")])
    disk.faults = Faults()
    for _ in range(12):
        clock.advance(1000)
        store.tick(clock.now_ms())
    places = ("consumequeue/", "index/", "gantry/queues.json", "gantry/recovery", "/checkpoint")
    firsts = [next(number for number, line in enumerate(disk.faults.trace) if place in line) for place in places]
    assert firsts == sorted(firsts)


def test_what_found_no_room_is_written_later() -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=1 << 20)
    store = opened(small("/s", flush_full_ms=1000), clock, disk=disk)  # type: ignore[arg-type]
    store.append([message(keys="k") for _ in range(20)])
    room, disk.quota_bytes = disk.quota_bytes, 0
    for _ in range(5):
        clock.advance(1500)
        store.tick(clock.now_ms())
    point = recoverypoint.load(disk, "/s")
    assert store.failed is None and point is not None and point.dispatched == 0
    disk.quota_bytes = room
    for _ in range(5):
        clock.advance(1500)
        store.tick(clock.now_ms())
    point = recoverypoint.load(disk, "/s")
    assert point is not None and point.dispatched == store.written.offset
    assert store.queue_range("orders", 0) == (0, 20)


def test_a_sync_that_fails_in_a_checkpoint_is_final() -> None:
    clock, disk = SimClock(), SimDisk()
    store = opened(small("/s", flush_full_ms=1000), clock, disk=disk)  # type: ignore[arg-type]
    store.append([message()])
    clock.advance(1500)
    store._flush.finish()
    disk.faults = Faults(fail_at=1, fail_kind="sync")
    store.tick(clock.now_ms())
    assert store.failed is not None


def test_the_table_of_queues_is_written_when_one_comes(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path, flush_full_ms=1000), clock)
    for topic in ("a", "b"):
        store.append([message(topic) for _ in range(3)])
        for _ in range(2):
            clock.advance(1500)
            store.tick(clock.now_ms())
        assert queuebase.load(RealDisk(), str(tmp_path)).ends[topic] == {0: (0, 3)}


TOPICS = 450  # more than two slices


def many(disk: SimDisk, clock: SimClock) -> Store:
    """A store with a dirty queue for each of many topics, and a checkpoint that is due."""
    store = opened(small("/s", segment_bytes=1 << 20, flush_full_ms=1000), clock, disk=disk)  # type: ignore[arg-type]
    for start in range(0, TOPICS, 50):
        store.append([message(f"t{number}") for number in range(start, start + 50)])
    clock.advance(1500)
    return store


def files(disk: SimDisk) -> int:
    return sum("/consumequeue/" in path for path in disk.files())


def test_a_checkpoint_of_many_queues_gives_the_loop_back_between_its_slices() -> None:
    clock, disk = SimClock(), SimDisk()
    store = many(disk, clock)
    rest = store.tick(clock.now_ms())
    slices = 0
    while files(disk) == 0:
        # What is appended meanwhile is no part of the picture, and not lost.
        store.append([message("t0"), message("late")])
        assert next(rest)
        slices += 1
    assert slices >= 2
    assert all(rest) and store._table.dirty() != []
    for _ in range(3):
        clock.advance(20_000)
        list(store.tick(clock.now_ms()))
    assert store._table.dirty() == []
    crash(store)
    again = opened(small("/s", segment_bytes=1 << 20), clock, disk=disk)  # type: ignore[arg-type]
    assert again.report.rebuilt == [] and again.report.records == 0
    assert again.queue_range("t0", 0) == (0, 1 + slices) and again.queue_range("t449", 0) == (0, 1)


def test_what_a_tick_did_not_finish_the_next_ones_do() -> None:
    clock, disk = SimClock(), SimDisk()
    store = many(disk, clock)
    for _ in range(8):
        store.tick(clock.now_ms())
    assert store._table.dirty() == []


def test_a_topic_deleted_between_two_slices_is_not_in_the_picture() -> None:
    clock, disk = SimClock(), SimDisk()
    store = many(disk, clock)
    rest = store.tick(clock.now_ms())
    store.delete_queues("t3")
    store.append([message("t3")])
    assert all(rest)
    assert not any("/consumequeue/t3/" in path for path in disk.files())
    for _ in range(2):
        clock.advance(20_000)
        list(store.tick(clock.now_ms()))
    crash(store)
    again = opened(small("/s", segment_bytes=1 << 20), clock, disk=disk)  # type: ignore[arg-type]
    assert again.report.rebuilt == [] and again.queue_range("t3", 0) == (0, 1)


def test_a_store_that_closes_between_two_slices_closes_in_order() -> None:
    clock, disk = SimClock(), SimDisk()
    store = many(disk, clock)
    store.tick(clock.now_ms())
    store.close()
    assert opened(small("/s", segment_bytes=1 << 20), clock, disk=disk).report.start is Start.CLEAN  # type: ignore[arg-type]


def test_readers_see_the_same_before_while_and_after_it_is_written(tmp_path: Path) -> None:
    clock, background = SimClock(), InlineBackground(at_once=False)
    store = opened(small(tmp_path, flush_full_ms=1000), clock, background)
    store.append([message(keys="k") for _ in range(20)])
    seen = []
    for _ in range(3):
        clock.advance(1500)
        store.tick(clock.now_ms())
        entries = [store.reader.entry("orders", 0, offset) for offset in range(20)]
        seen.append((entries, [bytes(one) for one in query(store.reader, "orders", "k", 64, 0, 1 << 50)]))
        background.step()
        store.append([message(keys="other")])
        background.step()
    assert all(one == seen[0] for one in seen) and len(seen[0][1]) == 20
    assert len(read_queue(tmp_path, "orders", 0)) >= 20


def test_a_cycle_that_the_housekeeper_does_not_take_leaves_its_work_to_the_next(tmp_path: Path) -> None:
    clock, background = SimClock(), InlineBackground(at_once=False)
    store = opened(small(tmp_path, flush_full_ms=1000), clock, background)
    store.append([message()])
    checkpoint = store._checkpoint
    store._index.dropped.append(str(tmp_path / "old"))
    (tmp_path / "old").write_bytes(b"")
    while background.housekeeper.submit(lambda: None):
        pass
    checkpoint.want_base()
    checkpoint.begin(0, 0, lambda error: None)
    assert store._index.dropped == [str(tmp_path / "old")] and checkpoint._wants_base
    background.housekeeper.drain()
    checkpoint.begin(0, 0, lambda error: None)
    background.housekeeper.drain()
    assert not (tmp_path / "old").exists() and not checkpoint._wants_base
