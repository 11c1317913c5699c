from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gantry.store import deleting, queuebase, queuetable
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.store import Store
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small


def test_a_deleted_topic_is_gone_from_memory_and_disk(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.append([message(), message("bills")])
    store.close()
    store = opened(small(tmp_path))
    store.delete_queues("orders")
    assert store.queue_range("orders", 0) is None and not (tmp_path / "consumequeue" / "orders").exists()
    assert list(store.queues()) == [("bills", 0)]
    store.close()
    assert list(opened(small(tmp_path)).queues()) == [("bills", 0)]


def test_a_topic_of_the_same_name_begins_at_zero_and_never_sees_the_old_records(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message(body=b"old") for _ in range(5)])
    store.delete_queues("orders")
    send = message(body=b"new")
    store.append([send])
    assert send.queue_offset == 0 and bodies(store) == [b"new"]
    crash(store)
    store = opened(small(tmp_path), clock)
    assert bodies(store) == [b"new"]
    store.close()
    # Even when everything is built again from the log, in which the old records still are.
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(small(tmp_path), clock)
    assert store.report.records == 6 and bodies(store) == [b"new"]


def test_records_that_were_not_confirmed_at_the_deletion_go_with_it() -> None:
    store = open_store(small("/s"), SimDisk(), SimClock(), InlineBackground())
    end = store.append([message(body=b"old")])
    store.delete_queues("orders")
    send = message(body=b"new")
    store.append([send])
    assert send.queue_offset == 0
    store.confirmed.advance(end)
    store.confirmed.advance(store.written.offset)
    assert bodies(store) == [b"new"]


def test_no_checkpoint_writes_new_entries_among_the_old_ones() -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=1 << 20)
    background = InlineBackground(at_once=False)
    store = opened(small("/s", flush_full_ms=1000), clock, background, disk)  # type: ignore[arg-type]
    store.append([message(body=b"old%d" % number) for number in range(5)])
    for _ in range(4):
        clock.advance(1100)
        store.tick(clock.now_ms())
        background.close()
    assert disk.exists("/s/consumequeue/orders/0")
    room, disk.quota_bytes = disk.quota_bytes, 0
    store.delete_queues("orders")
    store.append([message(body=b"new")])
    for _ in range(4):
        clock.advance(1100)
        store.tick(clock.now_ms())
        background.close()
    assert disk.exists("/s/consumequeue/orders/0"), "the gravestone found no room, so the folder is still there"
    disk.quota_bytes = room
    for _ in range(4):
        clock.advance(1100)
        store.tick(clock.now_ms())
        background.close()
    assert bodies(store) == [b"new"] and store.deleting.kept == 1
    crash(store)
    again = opened(small("/s"), clock, disk=disk)  # type: ignore[arg-type]
    assert bodies(again) == [b"new"] and again.queue_range("orders", 0) == (0, 1)


def test_gravestones_go_when_the_log_has_passed_them(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.append([message()])
    store.delete_queues("orders")
    assert store._table.gravestones == {"orders": store.written.offset}
    list(store._table.drop_before(store.written.offset + 1))
    assert store._table.gravestones == {}


def test_a_topic_that_is_deleted_again_while_its_gravestone_is_written_gets_another() -> None:
    clock, disk, background = SimClock(), SimDisk(), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, disk)  # type: ignore[arg-type]
    told: list[int] = []
    store.deleting.on_kept(lambda: told.append(store.deleting.kept))
    store.append([message(body=b"first")])
    store.delete_queues("orders")
    store.append([message(body=b"second")])
    store.delete_queues("orders")
    assert (store.deleting.asked, store.deleting.kept) == (2, 0)
    background.close()
    assert told == [1] and store.deleting.is_pending, "the gravestone on the disk lets the second message through"
    store.tick(clock.now_ms())
    background.close()
    assert told == [1, 2] and not store.deleting.is_pending
    crash(store)
    assert list(opened(small("/s"), clock, disk=disk).queues()) == []  # type: ignore[arg-type]


def test_a_deletion_is_kept_before_its_folders_are_gone_and_others_come_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deleting, "_QUEUES_AT_ONCE", 3)
    clock, disk, background = SimClock(), SimDisk(), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, disk)  # type: ignore[arg-type]
    store.append([message(queue_id=queue_id) for queue_id in range(8)])
    for _ in range(4):
        clock.advance(1100)
        store.tick(clock.now_ms())
        background.close()
    seen: list[tuple[str, int]] = []

    def look(who: str) -> None:
        seen.append((who, len(disk.list("/s/consumequeue/orders"))))

    store.deleting.on_kept(lambda: look("deleted"))
    store.delete_queues("orders")
    while not store.deleting.kept:
        background.step()
    background.housekeeper.submit(lambda: look("another's job"))
    for _ in range(2):
        background.step()
    assert seen == [("deleted", 8), ("another's job", 5)]
    assert store.deleting.is_pending
    crash(store)
    again = opened(small("/s"), clock, disk=disk.restart())  # type: ignore[arg-type]
    assert list(again.queues()) == [], "what is left of the folder does not count"


def test_a_later_deletion_does_not_wait_for_the_folders_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "_QUEUES_AT_ONCE", 2)
    clock, disk, background = SimClock(), SimDisk(), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, disk)  # type: ignore[arg-type]
    topics = [f"T{number}" for number in range(4)]
    store.append([message(topic, queue_id=queue_id) for topic in topics for queue_id in range(8)])
    for _ in range(4):
        clock.advance(1100)
        store.tick(clock.now_ms())
        background.close()
    for topic in topics[:3]:
        store.delete_queues(topic)
    while store.deleting.kept < 3:
        store.tick(clock.now_ms())
        background.step()
    before = sum(len(disk.list(f"/s/consumequeue/{topic}")) for topic in topics)
    store.delete_queues(topics[3])
    while store.deleting.kept < 4:
        store.tick(clock.now_ms())
        background.step()
    assert before - sum(len(disk.list(f"/s/consumequeue/{topic}")) for topic in topics) <= 2, "one job was under way"
    for _ in range(40):
        store.tick(clock.now_ms())
        background.close()
    assert not store.deleting.is_pending and not any(disk.exists(f"/s/consumequeue/{topic}") for topic in topics)


def many_queues(monkeypatch: pytest.MonkeyPatch) -> tuple[Store, SimClock, SimDisk]:
    """Eight queues whose table takes four slices."""
    monkeypatch.setattr(queuetable, "BASE_SLICE", 2)
    clock, disk = SimClock(), SimDisk()
    store = open_store(small("/s"), disk, clock, InlineBackground())
    store.append([message(f"T{number}") for number in range(8)])
    store.confirmed.advance(store.written.offset)
    return store, clock, disk


def test_a_deletion_walks_over_the_other_queues_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock, disk = many_queues(monkeypatch)
    store.delete_queues("T0")
    assert store.deleting.is_pending and store.deleting.kept == 0
    ticks = 0
    while store.deleting.kept == 0:
        store.tick(clock.now_ms())
        ticks += 1
    assert ticks == 3, "seven queues, two at a time, the first two at once"
    found = queuebase.load(disk, "/s")
    assert sorted(found.ends) == [f"T{number}" for number in range(1, 8)] and list(found.gravestones) == ["T0"]


def test_what_is_deleted_between_two_slices_is_not_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock, disk = many_queues(monkeypatch)
    store.delete_queues("T0")
    store.delete_queues("T1")
    store.append([message("T1")])
    store.confirmed.advance(store.written.offset)
    while store.deleting.kept < 2:
        store.tick(clock.now_ms())
    found = queuebase.load(disk, "/s")
    assert sorted(found.ends) == [f"T{number}" for number in range(2, 8)] and sorted(found.gravestones) == ["T0", "T1"]


def test_a_store_that_closes_brings_a_deletion_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock, disk = many_queues(monkeypatch)
    store.delete_queues("T0")
    store.close()
    assert store.deleting.kept == 1
    again = open_store(small("/s"), disk, clock, InlineBackground())
    assert ("T0", 0) not in set(again.queues()) and len(list(again.queues())) == 7


def test_a_store_that_closes_writes_deletions_that_were_asked_for_while_another_was_written() -> None:
    clock, disk, background = SimClock(), SimDisk(), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, disk)  # type: ignore[arg-type]
    store.append([message(f"T{number}") for number in range(3)])
    store.delete_queues("T0")
    store.delete_queues("T1")
    store.close()
    assert store.deleting.kept == 2 and not store.deleting.is_pending
    again = opened(small("/s"), clock, disk=disk.restart())  # type: ignore[arg-type]
    assert list(again.queues()) == [("T2", 0)] and again.report.records == 0, "it has stopped in order"


def test_a_store_that_closes_tries_deletions_once_on_a_full_disk() -> None:
    clock, disk, background = SimClock(), SimDisk(quota_bytes=1 << 20), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, disk)  # type: ignore[arg-type]
    store.append([message()])
    disk.quota_bytes = 0
    store.delete_queues("orders")
    store.close()
    assert store.deleting.kept == 0 and store.deleting.is_pending


class Places:
    """A housekeeper that takes so many jobs and refuses the others."""

    def __init__(self, store: Store, count: int) -> None:
        self._housekeeper, self._left = store.deleting._housekeeper, count

    def submit(self, *given: object) -> bool:
        self._left -= 1
        return self._left >= 0 and self._housekeeper.submit(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_deletion_for_which_the_housekeeper_has_no_place_is_made_later(tmp_path: Path, jobs: int) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message()])
    housekeeper = store.deleting._housekeeper
    store.deleting._housekeeper = Places(store, jobs)  # type: ignore[assignment]
    store.delete_queues("orders")
    assert store.deleting.kept == jobs and store.deleting.is_pending
    store.deleting._housekeeper = housekeeper
    store.tick(clock.now_ms())
    assert store.deleting.kept == 1 and not store.deleting.is_pending
