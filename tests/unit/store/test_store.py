"""The store as its callers see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gantry.clock import SteadyClock
from gantry.errors import CorruptRecordError, DiskFullError, StoreError, SyncFailedError
from gantry.store.background import InlineBackground, ThreadBackground
from gantry.store.commitlog import RunTooLongError
from gantry.store.disk import RealDisk
from gantry.store.opening import Opening, open_store
from gantry.store.settings import Flush
from testkit.foreignrecords import append_foreign
from testkit.keyed import query
from testkit.patience import HANG_S
from testkit.simclock import SimClock
from testkit.simdisk import Faults, SimDisk
from testkit.smallstore import bodies, message, opened, small


def test_a_run_gets_queue_offsets_in_its_order(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    first = [message(queue_id=number % 2) for number in range(5)]
    store.append(first)
    second = [message(), message("bills"), message(queue_id=1)]
    end = store.append(second)
    assert [send.queue_offset for send in first] == [0, 0, 1, 1, 2]
    assert [send.queue_offset for send in second] == [3, 0, 2]
    assert end == second[-1].log_offset + second[-1].size == store.written.offset
    assert store.next_queue_offset("orders", 0) == 4 and store.next_queue_offset("none", 0) == 0


def test_async_flush_shows_messages_at_once(tmp_path: Path) -> None:
    store = opened(small(tmp_path, flush=Flush.ASYNC))
    store.append([message()])
    assert store.flushed.offset == 0 < store.confirmed.offset == store.dispatched.offset


def test_sync_flush_shows_messages_when_they_are_durable(tmp_path: Path) -> None:
    background = InlineBackground(at_once=False)
    store = opened(small(tmp_path, flush=Flush.SYNC), background=background)
    end = store.append([message()])
    assert store.written.offset == end and store.confirmed.offset == 0 and store.queue_range("orders", 0) is None
    background.step()
    assert store.flushed.offset == store.confirmed.offset == store.dispatched.offset == end
    assert store.queue_range("orders", 0) == (0, 1)


def test_a_record_that_cannot_be_read_when_it_is_confirmed_ends_the_store(tmp_path: Path) -> None:
    background = InlineBackground(at_once=False)
    store = opened(small(tmp_path, flush=Flush.SYNC), background=background)
    told: list[StoreError] = []
    store.on_failed(told.append)
    store.append([message()])
    store.append([message()])  # what was appended last is dispatched from memory
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.write(bytes(8))
    background.step()
    assert [type(error) for error in told] == [CorruptRecordError] and store.queue_range("orders", 0) is None
    with pytest.raises(StoreError, match="has failed"):
        store.append([message()])


def test_a_refused_run_uses_nothing_up() -> None:
    disk = SimDisk(quota_bytes=100 << 10)
    store = opened(small("/s"), disk=disk)  # type: ignore[arg-type]
    store.append([message(body=b"first")])
    with pytest.raises(DiskFullError):
        store.append([message(body=bytes(2000)) for _ in range(60)])
    with pytest.raises(RunTooLongError):
        store.append([message(body=bytes(20_000))])
    assert store.failed is None and store.next_queue_offset("orders", 0) == 1
    send = message(body=b"second")
    store.append([send])
    assert send.queue_offset == 1 and bodies(store) == [b"first", b"second"]


def test_what_no_record_can_hold_is_refused_with_its_run_and_nothing_has_happened(tmp_path: Path) -> None:
    store = opened(replace(small(tmp_path), segment_bytes=1 << 20))
    store.append([message()])
    end = store.written.offset
    with pytest.raises(RunTooLongError, match="properties of 32768 bytes, a record holds 32767"):
        store.append([message(), message(pairs={"p": "x" * 32765})])
    assert (store.written.offset, store.next_queue_offset("orders", 0)) == (end, 1)
    store.append([message(pairs={"p": "x" * 32764})])
    assert store.failed is None and store.next_queue_offset("orders", 0) == 2


@pytest.mark.parametrize("bits", [4, 12])
def test_a_record_that_no_queue_would_show_comes_from_others_only(tmp_path: Path, bits: int) -> None:
    store = opened(small(tmp_path))
    with pytest.raises(AssertionError, match="no queue"):
        store.append([message(), message(sys_flag=bits)])
    assert store.written.offset == 0 and store.queue_range("orders", 0) is None
    append_foreign(store, [message(), message(sys_flag=bits), message()])
    assert store.queue_range("orders", 0) == (0, 2)


def test_a_failed_sync_is_final() -> None:
    disk = SimDisk()
    store = opened(small("/s", flush=Flush.SYNC), disk=disk)  # type: ignore[arg-type]
    heard: list[StoreError] = []
    store.on_failed(heard.append)
    end = store.append([message()])
    disk.faults = Faults(fail_at=1, fail_kind="sync")
    store.append([message()])
    assert isinstance(store.failed, SyncFailedError) and heard == [store.failed]
    assert store.flushed.offset == store.confirmed.offset == end
    with pytest.raises(StoreError, match="the store has failed"):
        store.append([message()])
    store.tick(0)
    store.close()
    assert disk.exists("/s/abort"), "only the next start can know what is on the disk"
    again = opened(small("/s"), disk=disk)  # type: ignore[arg-type]
    assert again.queue_range("orders", 0) == (0, 2)
    assert len(bodies(opened(small("/s"), disk=disk.crash()))) == 2  # type: ignore[arg-type]


def test_a_failed_write_is_final() -> None:
    disk = SimDisk()
    store = opened(small("/s"), disk=disk)  # type: ignore[arg-type]
    disk.faults = Faults(fail_at=1, fail_kind="write")
    with pytest.raises(StoreError):
        store.append([message()])
    assert store.failed is not None and store.written.offset == 0


def test_closing_leaves_abort_when_something_is_not_confirmed(tmp_path: Path) -> None:
    store = open_store(small(tmp_path), RealDisk(), SteadyClock(SimClock()), InlineBackground())
    store.append([message()])
    store.close()
    assert (tmp_path / "abort").exists()
    again = opened(small(tmp_path))
    assert bodies(again) == [b"x" * 100]
    again.close()
    assert not (tmp_path / "abort").exists()


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append([message()])


def test_queues_and_index_never_hold_on_disk_what_is_not_flushed() -> None:
    clock, disk = SimClock(), SimDisk()
    store = opened(small("/s", flush_interval_ms=10**9), clock, disk=disk)  # type: ignore[arg-type]
    store.append([message(keys="k") for _ in range(5)])
    for _ in range(5):
        clock.advance(2000)
        store.tick(clock.now_ms())
    assert disk.list("/s/consumequeue") == [] and disk.list("/s/index") == []
    assert len(query(store.reader, "orders", "k", 32, 0, 1 << 50)) == 5


def test_stats(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    assert store.stats().oldest_ms == -1
    store.append([message(), message(queue_id=1)])
    stats = store.stats()
    assert (stats.log_start, stats.written, stats.flushed) == (0, store.written.offset, 0)
    assert stats.oldest_ms == stats.newest_ms == clock.now_ms() and stats.queues == 2
    assert 0 < stats.disk_free_bytes <= stats.disk_total_bytes


def test_cold_messages_are_brought_in(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.append([message() for _ in range(5)])
    told: list[str] = []
    fetched = store.reader.fetch("orders", 0, 0, 5, 1 << 20, None)
    store.bring_in(fetched.places, lambda: told.append("in"))
    assert told == ["in"]


def test_opening_shows_its_progress_and_can_be_given_up(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.append([message() for _ in range(20)])
    assert store._parts.lock is not None
    store._parts.lock.release()
    opening = Opening(small(tmp_path), RealDisk(), SteadyClock(SimClock()), InlineBackground())
    steps = opening.steps()
    assert next(steps).stage == "lock" and next(steps).stage == "queues"
    steps.close()
    assert opening.store is None
    opening = Opening(small(tmp_path), RealDisk(), SteadyClock(SimClock()), InlineBackground())
    stages = [progress.stage for progress in opening.steps()]
    assert stages[0] == "lock" and stages[-1] == "finish" and "log" in stages


def test_the_real_threads_do_the_same(tmp_path: Path) -> None:
    import queue
    from collections.abc import Callable

    posted: queue.Queue[Callable[[], None]] = queue.Queue()
    background = ThreadBackground(posted.put)
    settings = small(tmp_path, flush=Flush.SYNC, checkpoint_interval_ms=1)
    store = open_store(settings, RealDisk(), SimClock(), background)
    store.confirm_locally()
    for number in range(100):
        store.append([message(queue_id=number % 3, body=b"%d" % number + b"." * 800, keys="k")])
        while store.flushed.offset < store.written.offset:
            posted.get(timeout=HANG_S)()
        store.tick(number)
    store.close()
    background.close()
    again = opened(settings)
    assert again.report.records == 0
    assert [int(body.split(b".")[0]) for body in bodies(again, queue_id=1)] == list(range(1, 100, 3))
