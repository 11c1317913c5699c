from __future__ import annotations

from pathlib import Path

from gantry.errors import CorruptRecordError
from gantry.leaves import records
from gantry.store.disk import RealDisk
from gantry.store.dispatcher import Derivation
from gantry.store.duetimes import SCHEDULE_TOPIC
from gantry.store.keyindex import KeyIndex
from gantry.store.queuefiles import FILLER_SIZE, QueueFiles
from gantry.store.queuetable import QueueTable
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import message, opened, small


def _entry(queue_offset: int, log_offset: int, topic: str = "t", sys_flag: int = 0, text: bytes = b"") -> records.Entry:
    return records.Entry(log_offset, 100, topic, 0, queue_offset, 5, 1_000_000, sys_flag, 0, b"", b"", text)


def _derivation(tmp_path: Path) -> tuple[Derivation, QueueTable]:
    disk = RealDisk()
    table = QueueTable(disk, str(tmp_path), QueueFiles(disk, 8, together_min=64))
    return Derivation(table, KeyIndex(disk, str(tmp_path), SimClock(), 8, 20), (1000, 5000)), table


def _entries(table: QueueTable, topic: str = "t") -> list[tuple[int, int, int] | None]:
    queue = table.get(topic, 0)
    return [] if queue is None else [queue.entry(offset) for offset in range(queue.first, queue.next)]


def test_records_go_to_their_queues_in_log_order(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    placed = derivation.place([_entry(0, 0), _entry(0, 100, "u"), _entry(1, 200)])
    assert [(queue.topic, queue.next, len(fresh)) for queue, fresh in placed] == [("t", 2, 2), ("u", 1, 1)]
    assert _entries(table) == [(0, 100, 5), (200, 100, 5)]


def test_records_that_are_there_already_are_left_out(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    entries = [_entry(number, 100 * number) for number in range(4)]
    derivation.place(entries[:3])
    placed = derivation.place(entries)
    assert [len(fresh) for _, fresh in placed] == [1]
    assert derivation.place(entries) == [] and len(_entries(table)) == 4


def test_prepared_and_rolled_back_records_have_no_entry(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    derivation.place([_entry(0, 0, sys_flag=4), _entry(0, 100, sys_flag=12), _entry(0, 200, sys_flag=8)])
    assert _entries(table) == [(200, 100, 5)]


def test_a_delayed_record_carries_its_delivery_time(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    texts = [b"DELAY\x012\x02", b"DELAY\x019\x02", b"", b"DELAY\x01x\x02"]
    derivation.place([_entry(number, number * 100, SCHEDULE_TOPIC, 0, text) for number, text in enumerate(texts)])
    assert [entry and entry[2] for entry in _entries(table, SCHEDULE_TOPIC)] == [1_005_000, 1_005_000, 5, 5]


def test_the_first_record_of_a_queue_says_where_it_begins(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    derivation.place([_entry(7, 700)])
    queue = table.get("t", 0)
    assert queue is not None and (queue.first, queue.next) == (7, 8)


def test_an_offset_told_to_a_producer_is_kept_even_if_those_before_it_are_lost(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    derivation.place([_entry(0, 0), _entry(3, 300), _entry(1, 400), _entry(4, 500)])
    queue = table.get("t", 0)
    assert queue is not None and queue.next == 5
    assert _entries(table) == [(0, 100, 5), None, None, (300, 100, 5), (500, 100, 5)]
    buffer, at, _ = queue.locate(1)
    assert int.from_bytes(buffer[at + 8 : at + 12], "big") == FILLER_SIZE


def test_while_a_part_of_the_log_is_read_gaps_are_noted_not_filled(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    derivation.place([_entry(0, 0)])
    derivation.gaps = {}
    derivation.place([_entry(2, 200), _entry(4, 300, "unknown"), _entry(0, 400, "young")])
    assert list(derivation.gaps) == [("t", 0), ("unknown", 0)]
    assert len(_entries(table)) == 1 and len(_entries(table, "young")) == 1 and table.get("unknown", 0) is None


def test_records_of_a_deleted_topic_do_not_come_back(tmp_path: Path) -> None:
    derivation, table = _derivation(tmp_path)
    table.gravestones = {"t": 250}
    derivation.place([_entry(number, 100 * number) for number in range(3)])
    assert table.get("t", 0) is None
    derivation.place([_entry(0, 300), _entry(1, 400)])
    assert _entries(table) == [(300, 100, 5), (400, 100, 5)]


def test_news_of_a_queue_comes_when_it_can_be_read() -> None:
    store = opened(small("/s"), disk=SimDisk())  # type: ignore[arg-type]
    heard = []

    def listener(topic: str, queue_id: int, end: int, entries: list[records.Entry]) -> None:
        ends = store.queue_range(topic, queue_id)
        heard.append((topic, queue_id, end, ends, len(entries), store.dispatched.offset == store.written.offset))

    store.on_dispatched(listener)
    store.append([message(), message(queue_id=1), message()])
    assert heard == [("orders", 0, 2, (0, 2), 2, True), ("orders", 1, 1, (0, 1), 1, True)]


def test_a_listener_may_append() -> None:
    store = opened(small("/s"), disk=SimDisk())  # type: ignore[arg-type]
    heard: list[str] = []

    def listener(topic: str, queue_id: int, end: int, entries: list[records.Entry]) -> None:
        heard.append(topic)
        if topic == "orders":
            store.append([message("bills")])

    store.on_dispatched(listener)
    store.append([message()])
    assert heard == ["orders", "bills"] and store.dispatched.offset == store.written.offset


def test_nothing_is_dispatched_before_it_is_confirmed() -> None:
    from gantry.store.background import InlineBackground
    from gantry.store.opening import open_store

    store = open_store(small("/s"), SimDisk(), SimClock(), InlineBackground())
    end = store.append([message()])
    assert store.queue_range("orders", 0) is None and store.dispatched.offset == 0
    store.confirmed.advance(end)
    assert store.queue_range("orders", 0) == (0, 1)


def test_confirmed_bytes_that_do_not_read_are_told(tmp_path: Path) -> None:
    store = opened(small(tmp_path))
    store.append([message()])
    end = store.append([message()])
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(end)
        file.write(b"garbage!" * 20)
    store.written.offset = end + 160
    store.confirmed.advance(end + 160)
    assert isinstance(store.failed, CorruptRecordError) and "among confirmed records" in str(store.failed)
    assert store.dispatched.offset == end
