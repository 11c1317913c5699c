"""Opening a folder in the states that a stop, a crash or RocketMQ's broker leaves it in."""

from __future__ import annotations

import dataclasses
import shutil
import struct
from pathlib import Path

import pytest

from gantry.errors import CorruptRecordError, StoreError
from gantry.store import javacheckpoint
from gantry.store.disk import RealDisk
from gantry.store.javacheckpoint import JavaCheckpoint
from gantry.store.recovery import Start
from gantry.store.settings import StoreSettings
from gantry.store.store import Store
from testkit.foreignrecords import append_foreign
from testkit.keyed import query
from testkit.simclock import SimClock
from testkit.smallstore import bodies, crash, message, opened, query_index, read_folder, read_queue, small


def _fill(store: Store, clock: SimClock, count: int = 60) -> None:
    for number in range(count):
        store.append([message(queue_id=number % 2, body=b"%d" % number + b"." * 700, keys=f"k{number % 5}")])
        clock.advance(200)
        store.tick(clock.now_ms())


def _unseen(store: Store, count: int = 10) -> None:
    """Messages that no checkpoint knows."""
    for number in range(60, 60 + count):
        store.append([message(queue_id=number % 2, body=b"%d." % number, keys=f"k{number % 5}")])


def _check(store: Store, count: int = 60) -> None:
    for queue_id in (0, 1):
        found = [body.split(b".")[0] for body in bodies(store, queue_id=queue_id)]
        assert found == [b"%d" % number for number in range(queue_id, count, 2)]
    for key in range(5):
        assert len(query(store.reader, "orders", f"k{key}", 64, 0, 1 << 50)) == count // 5
    assert store.next_queue_offset("orders", 0) == count // 2


@pytest.fixture
def settings(tmp_path: Path) -> StoreSettings:
    return small(tmp_path, flush_full_ms=1000)


def _lived(settings: StoreSettings, stop: str) -> SimClock:
    clock = SimClock()
    store = opened(settings, clock)
    _fill(store, clock)
    if stop == "in order":
        store.close()
    else:
        crash(store)
    return clock


def _become_foreign(settings: StoreSettings) -> None:
    """What RocketMQ's broker would have left: nothing of ours."""
    shutil.rmtree(f"{settings.root}/gantry")


def test_an_empty_folder_becomes_a_store(settings: StoreSettings, tmp_path: Path) -> None:
    store = opened(settings)
    assert store.written.offset == 0 and (tmp_path / "abort").exists() and (tmp_path / "lock").exists()
    store.append([message()])
    store.close()
    assert not (tmp_path / "abort").exists()


def test_after_an_orderly_stop_nothing_is_read(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    store = opened(settings, clock)
    assert store.report.start is Start.CLEAN and store.report.records == 0 and store.report.rebuilt == []
    _check(store)


def test_after_a_crash_only_what_came_since_the_checkpoint_is_read(settings: StoreSettings) -> None:
    clock = _lived(settings, "crash")
    store = opened(settings, clock)
    _unseen(store)
    crash(store)
    store = opened(settings, clock)
    assert store.report.start is Start.CRASHED and store.report.records == 10 and store.report.rebuilt == []
    _check(store, 70)


def test_files_after_an_orderly_stop_are_complete_for_another_reader(settings: StoreSettings, tmp_path: Path) -> None:
    _lived(settings, "in order")
    records = read_folder(tmp_path)
    assert len(records) == 60
    for queue_id in (0, 1):
        entries = read_queue(tmp_path, "orders", queue_id)
        mine = [one for one in records if one.queue_id == queue_id]
        assert [entries[one.queue_offset][:2] for one in mine] == [(one.log_offset, one.size) for one in mine]
        assert len(entries) == len(mine)
    by_key = [one.log_offset for one in records if b"k3\x02" in one.properties]
    assert query_index(tmp_path, settings.index_slots, "orders#k3") == by_key[::-1]
    checkpoint = javacheckpoint.load(RealDisk(), str(tmp_path))
    assert checkpoint is not None and checkpoint[:3] == (records[-1].store_ms,) * 3


def test_every_start_may_be_interrupted_and_repeated(settings: StoreSettings) -> None:
    clock = _lived(settings, "crash")
    for _ in range(3):
        crash(opened(settings, clock))
    _check(opened(settings, clock))


@pytest.mark.parametrize("stop", ["in order", "crash"])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/orders/1", "index", "gantry", "checkpoint"])
def test_what_is_derived_may_be_lost(settings: StoreSettings, lost: str, stop: str) -> None:
    clock = _lived(settings, stop)
    path = Path(settings.root) / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    store = opened(settings, clock)
    _check(store)
    store.close()
    assert opened(settings, clock).report.start is Start.CLEAN


def test_rocketmqs_orderly_stop_is_believed(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    _become_foreign(settings)
    store = opened(settings, clock)
    assert store.report.start is Start.FOREIGN_CLEAN and 0 < store.report.records < 60 and store.report.rebuilt == []
    _check(store)


@pytest.mark.parametrize(("zeros", "is_crash"), [(511, True), (1100, False)])
def test_zeros_in_properties_are_no_lost_sector(settings: StoreSettings, zeros: int, is_crash: bool) -> None:
    """After a crash of ours: as many as messages may have.  After an orderly stop of RocketMQ's broker: any number."""
    clock = SimClock()
    store = opened(settings, clock)
    sent = [b"x" * count for count in range(0, 512, 5)]
    for body in sent:
        store.append([message(body=body, pairs={"p": ("\0" if is_crash else "z") * zeros})])
    if is_crash:
        crash(store)
    else:
        store.close()
        _become_foreign(settings)
        # Our own store refuses them, RocketMQ's takes them; no checksum of a record covers its properties.
        segment = Path(settings.root) / "commitlog" / f"{0:020}"
        segment.write_bytes(segment.read_bytes().replace(b"z" * zeros, b"\0" * zeros))
    again = opened(settings, clock)
    assert again.report.start is (Start.CRASHED if is_crash else Start.FOREIGN_CLEAN)
    assert bodies(again) == sent
    again.close()


def test_rocketmq_may_write_between_two_starts_of_ours(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    copy = Path(f"{settings.root}.java")
    shutil.copytree(settings.root, copy)
    other = dataclasses.replace(settings, root=str(copy))
    java = opened(other, clock)
    java.append([message(queue_id=number % 2, body=b"%d." % number, keys=f"k{number % 5}") for number in range(60, 80)])
    clock.advance(5000)
    java.close()
    # Ours beside it is from before; RocketMQ's checkpoint tells that somebody else was here.
    shutil.rmtree(copy / "gantry")
    shutil.copytree(Path(settings.root) / "gantry", copy / "gantry")
    store = opened(other, clock)
    assert store.report.start is Start.FOREIGN_CLEAN
    _check(store, 80)


def test_rocketmqs_crash_is_read_from_what_its_checkpoint_trusts(settings: StoreSettings) -> None:
    clock = _lived(settings, "crash")
    shutil.rmtree(f"{settings.root}/gantry")
    last = read_folder(settings.root)[-1]
    javacheckpoint.save(RealDisk(), settings.root, JavaCheckpoint(last.store_ms, last.store_ms, last.store_ms))
    store = opened(settings, clock)
    assert store.report.start is Start.FOREIGN_CRASHED and store.report.scanned_from > 0
    _check(store)


def test_queue_entries_of_rocketmqs_that_name_lost_records_are_cut(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    root = Path(settings.root)
    shutil.rmtree(root / "gantry")
    (root / "abort").touch()
    last = read_folder(root)[-1]
    segment = root / "commitlog" / f"{last.log_offset // settings.segment_bytes * settings.segment_bytes:020d}"
    data = bytearray(segment.read_bytes())
    data[last.log_offset % settings.segment_bytes + 95] ^= 0xFF
    segment.write_bytes(data)
    javacheckpoint.save(RealDisk(), settings.root, JavaCheckpoint(1, 1, 1))
    store = opened(settings, clock)
    assert store.report.end == last.log_offset and store.queue_range("orders", 1) == (0, 29)
    assert len(read_queue(root, "orders", 1)) == 29
    store.append([message(queue_id=1, body=b"59.", keys="k4")])
    _check(store)


def test_a_bad_record_below_what_was_durable_is_told_not_cut(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    root = Path(settings.root)
    shutil.rmtree(root / "consumequeue")
    victim = read_folder(root)[10]
    before = (root / "commitlog" / f"{0:020d}").read_bytes()
    data = bytearray(before)
    data[victim.log_offset + 100] ^= 0xFF
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    with pytest.raises(CorruptRecordError, match=rf"at {victim.log_offset}, but the log was durable"):
        opened(settings, clock)
    assert (root / "commitlog" / f"{0:020d}").read_bytes() == bytes(data)
    # The folder was given back.
    (root / "commitlog" / f"{0:020d}").write_bytes(before)
    _check(opened(settings, clock))


def test_without_a_log_rocketmqs_queues_go_and_ours_are_missed(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    shutil.rmtree(f"{settings.root}/commitlog")
    with pytest.raises(StoreError, match=r"was durable up to .*; restore the missing segments"):
        opened(settings, clock)
    shutil.rmtree(f"{settings.root}/gantry")
    store = opened(settings, clock)
    assert list(store.queues()) == [] and store.next_queue_offset("orders", 0) == 0


@pytest.mark.parametrize("change", [{"segment_bytes": 32768}, {"queue_file_entries": 16}, {"index_slots": 8}])
def test_other_sizes_than_it_was_written_with_are_refused(settings: StoreSettings, change: dict[str, int]) -> None:
    _lived(settings, "in order")
    with pytest.raises(StoreError, match=r"set (what|store.segment_bytes)"):
        opened(dataclasses.replace(settings, **change))  # type: ignore[arg-type]


def test_two_brokers_cannot_have_one_folder(settings: StoreSettings) -> None:
    store = opened(settings)
    with pytest.raises(StoreError, match="locked by another broker"):
        opened(settings)
    store.append([message()])
    store.close()
    opened(settings).close()


def test_records_of_the_oldest_rocketmq_are_read_but_prepared_ones_are_in_no_queue(settings: StoreSettings) -> None:
    clock = SimClock()
    store = opened(settings, clock)
    prepared, rollback = message(sys_flag=4, keys="p"), message(sys_flag=12, body=b"", keys="r")
    commit = message(sys_flag=8, prepared_offset=0)
    append_foreign(store, [prepared, message(), rollback, commit])
    assert store.queue_range("orders", 0) == (0, 2) and prepared.queue_offset == rollback.queue_offset == 0
    crash(store)
    shutil.rmtree(f"{settings.root}/gantry")
    store = opened(settings, clock)
    assert store.queue_range("orders", 0) == (0, 2) and store.report.records == 4


def test_an_offset_remembered_for_a_queue_is_where_it_goes_on(settings: StoreSettings) -> None:
    clock = _lived(settings, "in order")
    root = Path(settings.root)
    # All records expired, the queue's files with them.
    shutil.rmtree(root / "consumequeue" / "orders" / "0")
    segments = sorted((root / "commitlog").iterdir())
    keep = read_folder(root)[-1].log_offset // settings.segment_bytes
    for path in segments[:keep]:
        path.unlink()
    store = opened(settings, clock)
    low, high = store.queue_range("orders", 0) or (0, 0)
    assert high == 30 and low >= 20
    assert store.next_queue_offset("orders", 0) == 30


def test_a_queue_without_any_record_left_does_not_begin_again_at_zero(settings: StoreSettings) -> None:
    clock = SimClock()
    store = opened(settings, clock)
    store.append([message("rare") for _ in range(3)])
    _fill(store, clock)
    store.close()
    root = Path(settings.root)
    shutil.rmtree(root / "consumequeue" / "rare")
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    for _ in range(2):
        store = opened(settings, clock)
        assert store.queue_range("rare", 0) == (3, 3)
        store.close()
    store = opened(settings, clock)
    assert store.report.rebuilt == []
    send = message("rare", body=b"late")
    store.append([send])
    assert send.queue_offset == 3 and bodies(store, "rare") == [b"late"]


def test_blanks_in_old_stores_that_fill_a_segment_exactly_are_passed(settings: StoreSettings) -> None:
    store = opened(settings)
    overhead = 91 + len("orders")
    store.append([message(body=bytes(settings.segment_bytes - 8 - overhead))])
    store.append([message(body=b"next")])
    crash(store)
    data = (Path(settings.root) / "commitlog" / f"{0:020d}").read_bytes()
    assert struct.unpack(">ii", data[-8:]) == (8, -875286124)
    shutil.rmtree(f"{settings.root}/gantry")
    assert bodies(opened(settings))[1] == b"next"
