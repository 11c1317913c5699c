from __future__ import annotations

from pathlib import Path

from gantry.leaves import queues
from gantry.store.disk import RealDisk
from gantry.store.queuefiles import QueueFiles
from gantry.store.queuetable import QueueTable
from testkit.counting import instructions


def _table(tmp_path: Path) -> QueueTable:
    disk = RealDisk()
    return QueueTable(disk, str(tmp_path), QueueFiles(disk, 8, together_min=64))


def _put(table: QueueTable, topic: str, count: int, log_offset: int = 0) -> None:
    queue = table.get(topic, 0) or table.create(topic, 0, 0)
    entries = [(log_offset + 100 * number, 100, 0) for number in range(count)]
    table.add(queue, queues.pack_entries(entries), log_offset + 100 * count)


def test_only_queues_with_a_tail_are_written(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _put(table, "a", 3)
    _put(table, "b", 2, 300)
    pending = table.pending(400)
    assert [(queue.topic, len(tail.entries) // 20) for queue, tail in pending] == [("a", 3), ("b", 1)]
    assert table.tail_bytes == 100
    table.files.write([tail for _, tail in pending])
    table.settle(pending)
    assert [queue.topic for queue, _ in table.pending(1000)] == ["b"] and table.tail_bytes == 20


def test_a_tail_of_a_queue_deleted_meanwhile_is_nobodys(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _put(table, "a", 3)
    pending = table.pending(1000)
    table.delete("a", 300)
    assert table.tail_bytes == 0
    _put(table, "a", 1, 300)
    table.settle(pending)
    assert table.tail_bytes == 20
    queue = table.get("a", 0)
    assert queue is not None and (queue.stored, queue.next) == (0, 1)


def test_heads_go_on_where_dispatching_ended(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _put(table, "a", 3)
    table.create("b", 5, 77)
    table.raise_heads()
    assert table.heads == {("a", 0): 3, ("b", 5): 77}


def test_the_base_knows_what_lies_below_an_offset(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _put(table, "a", 3)
    table.delete("gone", 50)
    *_, base = table.base(200)
    assert base is not None
    assert (base.log_offset, base.ends, base.gravestones) == (200, {"a": {0: (0, 2)}}, {"gone": 50})


def test_going_on_fills_what_is_lost(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _put(table, "a", 3)
    table.go_on("a", 0, 5)
    table.go_on("a", 0, 2)
    table.go_on("empty", 1, 9)
    queue, empty = table.get("a", 0), table.get("empty", 1)
    assert queue is not None and queue.next == 5 and queue.entry(4) is None and queue.entry(2) is not None
    assert empty is not None and (empty.first, empty.next) == (9, 9)
    assert (tmp_path / "consumequeue" / "empty" / "1" / f"{160:020d}").stat().st_size == 160


def test_more_queues_than_may_be_open_are_read_in_turn(tmp_path: Path) -> None:
    table = _table(tmp_path)
    for number in range(1100):
        queue = table.create("t", number, 0)
        table.add(queue, queues.pack_entries([(100 * number, 100, 0)]), 100 * number + 100)
    pending = table.pending(1 << 60)
    table.files.write([tail for _, tail in pending])
    table.settle(pending)
    for _ in range(2):
        for number in range(1100):
            queue = table.get("t", number)  # type: ignore[assignment]
            assert queue.entry(0) == (100 * number, 100, 0)
    assert len(table.files._open) == 1024
    table.files.close()


def test_a_deletion_looks_at_no_queue_of_another_topic(tmp_path: Path) -> None:
    costs = []
    for others in (10, 1000):
        table = _table(tmp_path)
        for queue_id in range(others):
            table.create("other", queue_id, 0)
            table.heads["other", queue_id] = 5
        for queue_id in range(10):
            table.create("gone", queue_id, 0)
        table.heads |= {("gone", 10): 3}  # its messages are not dispatched yet
        table.note_ids([("gone", 10)])
        with instructions() as ran:
            table.delete("gone", 50)
        costs.append(ran.calls)
        assert len(table.heads) == len(list(table)) == others
    assert costs[0] == costs[1]


def test_a_deletion_closes_the_files_of_all_queues_of_the_topic(tmp_path: Path) -> None:
    table = _table(tmp_path)
    for topic in ("gone", "gone2"):
        table.files.establish(f"{tmp_path}/consumequeue/{topic}/0", 3)
        table.files.view(f"{tmp_path}/consumequeue/{topic}/0", 3)
    table.delete("gone", 50)
    assert [path for path in table.files._open if "/gone/" in path] == []
    assert len(table.files._open) == 1
