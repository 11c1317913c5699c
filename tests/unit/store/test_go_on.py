"""A store that is left open for the next broker in the same process: the same files, other marks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.errors import StoreError
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush
from gantry.store.store import Store
from testkit import storeplay
from testkit.simclock import SimClock
from testkit.simdisk import Faults, SimDisk
from testkit.smallstore import message

ASYNC = replace(storeplay.settings(Flush.ASYNC), keeps_tail=True)


def opened(disk: SimDisk, background: InlineBackground | None = None) -> Store:
    return open_store(ASYNC, disk, SimClock(), background or InlineBackground())


def with_a_tail() -> tuple[Store, int]:
    """Five messages in each of two queues; three and two of them are confirmed, up to the place that is returned."""
    store = opened(SimDisk())
    ends = [store.append([message(queue_id=number % 2)]) for number in range(10)]
    store.confirmed.advance(ends[4])
    return store, ends[4]


def test_what_was_confirmed_is_shown_and_appends_go_on_behind_the_tail() -> None:
    store, confirmed = with_a_tail()
    end = store.written.offset
    after = store.go_on()
    assert after is not None
    marks = after.written.offset, after.flushed.offset, after.confirmed.offset, after.dispatched.offset
    assert marks == (end, end, confirmed, confirmed)
    assert [after.queue_range("orders", queue_id) for queue_id in (0, 1)] == [(0, 3), (0, 2)]
    assert [after.next_queue_offset("orders", queue_id) for queue_id in (0, 1)] == [5, 5]
    run = [message()]
    after.append(run)
    after.confirmed.advance(after.written.offset)
    assert run[0].queue_offset == 5 and after.queue_range("orders", 0) == (0, 6)


def test_a_start_finds_the_same_as_if_it_had_been_closed_in_between() -> None:
    store, _ = with_a_tail()
    disk = store._parts.disk
    assert isinstance(disk, SimDisk)
    after = store.go_on()
    assert after is not None
    after.append([message("bills")])
    after.confirmed.advance(after.written.offset)
    after.close()
    again = opened(disk)
    assert again.queue_range("orders", 1) == (0, 5) and again.queue_range("bills", 0) == (0, 1)
    assert again.confirmed.offset == again.written.offset


def test_nobody_who_listened_hears_of_what_comes_then_and_the_former_store_takes_nothing() -> None:
    store, _ = with_a_tail()
    heard: list[object] = []
    for mark in (store.written, store.flushed, store.confirmed, store.dispatched):
        mark.listen(heard.append)
    store.on_dispatched(lambda *news: heard.append(news))
    after = store.go_on()
    assert after is not None
    heard.clear()
    after.append([message()])
    after.confirmed.advance(after.written.offset)
    assert not heard
    with pytest.raises(StoreError, match="closed"):
        store.append([message()])
    assert store.go_on() is None


def test_a_store_that_cannot_make_its_log_durable_has_to_be_closed() -> None:
    store, _ = with_a_tail()
    disk = store._parts.disk
    assert isinstance(disk, SimDisk)
    disk.faults = Faults(fail_at=1, fail_kind="sync")
    assert store.go_on() is None and store.failed is not None
    store.close()


def test_a_store_that_has_a_deletion_to_keep_has_to_be_closed() -> None:
    disk = SimDisk()
    store = opened(disk)
    store.confirmed.advance(store.append([message()]))
    disk.quota_bytes = 0
    disk.faults = Faults(fail_at=1, fail_errno=28, fail_kind="rename")
    store.delete_queues("orders")
    assert store.go_on() is None and store.failed is None
    disk.quota_bytes = 1 << 50
    store.close()


def test_a_store_that_fails_while_it_goes_on_has_to_be_closed() -> None:
    disk, background = SimDisk(), InlineBackground(at_once=False)
    store = opened(disk, background)
    store.confirmed.advance(store.append([message()]))
    store._flush.finish()
    store._parts.checkpoint.want_base()
    for _ in store.tick(0):
        pass
    assert background.housekeeper.is_busy, "a checkpoint is under way"
    disk.faults = Faults(fail_at=1, fail_kind="sync")
    assert store.go_on() is None and store.failed is not None
    store.close()
