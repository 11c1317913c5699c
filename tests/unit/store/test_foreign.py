"""What RocketMQ's broker did to topics while it had the folder; see also properties/test_foreign_folders."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gantry.leaves import queues
from gantry.model import names
from gantry.store import filenames, foreign, generations
from gantry.store.generations import Generations, TopicGeneration
from gantry.store.queuebase import QueueBase
from gantry.store.queuefiles import QueueFiles
from gantry.store.queuetable import QueueTable
from gantry.store.recovery import Start
from gantry.store.store import Store
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small

ROOT = "/s"
_SIZES = {"queue_file_entries": 100, "index_slots": 64, "index_entries": 4000}
_SETTINGS = small(ROOT, segment_bytes=1 << 20, **_SIZES)
OURS = (f"{ROOT}/gantry/", f"{ROOT}/config/topicGenerations.json")


def _write(disk: SimDisk, path: str, data: bytes) -> None:
    disk.make_folders(path.rsplit("/", 1)[0])
    disk.unlink(path)
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    file.close()


def _back_from_rocketmq(
    segment_bytes: int, play: Callable[[Store], None], *, first: str = "T", is_killed: bool = False
) -> tuple[SimDisk, Store]:
    """Forty messages of T (or another topic), what RocketMQ's broker does then, and the folder opened by ours again."""
    disk, clock = SimDisk(), SimClock()
    settings = small(ROOT, segment_bytes=segment_bytes, **_SIZES)
    store = opened(settings, clock, disk=disk)
    for number in range(40):
        store.append([message(first, number % 2, b"old%d" % number + b"x" * 1500)])
    if is_killed:
        crash(store)
        disk.restart()
    else:
        store.close()
    kept = {path: data for path, data in disk.files().items() if path.startswith(OURS)}
    clock.advance(60_000)
    store = opened(settings, clock, disk=disk)
    play(store)
    store.close()
    for path in disk.files():
        if path.startswith(OURS):
            disk.unlink(path)
    for path, data in kept.items():
        _write(disk, path, data)
    clock.advance(60_000)
    return disk, opened(settings, clock, disk=disk)


@pytest.mark.parametrize("segment_bytes", [16384, 1 << 20])
@pytest.mark.parametrize("count", [1, 10, 60])
def test_a_topic_that_was_made_again_counts_from_0_and_what_it_was_before_is_buried(
    segment_bytes: int, count: int
) -> None:
    new = [b"new%d" % number for number in range(count)]

    def play(store: Store) -> None:
        store.delete_queues("T")
        store.append([message("T", 1, body) for body in new])

    disk, store = _back_from_rocketmq(segment_bytes, play)
    assert store.report.start is Start.FOREIGN_CLEAN and store.report.rebuilt == []
    assert bodies(store, "T", 1) == new and store.next_queue_offset("T", 1) == count
    assert [queue for queue in store.queues() if queue[0] == "T"] == [("T", 1)], "the other queue was not made again"
    life = generations.load(disk, ROOT).life("T")
    assert life is not None and life.begins > 40 * 1500, "durable: a rebuild of queues leaves the old ones out"
    store.close()


@pytest.mark.parametrize(("listed", "is_back"), [({"U": {}}, False), ({"T": {}}, True), ({}, True)])
def test_a_deleted_topic_stays_away_where_the_table_of_topics_says_so(
    listed: dict[str, object], is_back: bool
) -> None:
    disks: list[SimDisk] = []

    def play(store: Store) -> None:
        store.delete_queues("T")
        store.append([message("U", 0, b"new")])
        disk = store._parts.disk
        assert isinstance(disk, SimDisk)
        disks.append(disk)
        _write(disk, filenames.config(ROOT, "topics.json"), json.dumps({"topicConfigTable": listed}).encode())

    _, store = _back_from_rocketmq(1 << 20, play)
    assert (("T", 0) in set(store.queues())) is is_back
    assert bodies(store, "U") == [b"new"]
    store.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_topic_that_was_made_and_deleted_meanwhile_stays_away_after_a_stop_in_order(is_killed: bool) -> None:
    def play(store: Store) -> None:
        store.append([message("V", 0, b"gone") for _ in range(3)])
        store.append([message("U", 0, b"new")])
        store.delete_queues("V")
        disk = store._parts.disk
        assert isinstance(disk, SimDisk)
        _write(disk, filenames.config(ROOT, "topics.json"), b'{"topicConfigTable": {"T": {}, "U": {}}}')
        store.close()
        if is_killed:
            disk.open(filenames.abort(ROOT), create=True).close()

    disk, store = _back_from_rocketmq(1 << 20, play)
    assert store.report.start is (Start.FOREIGN_CRASHED if is_killed else Start.FOREIGN_CLEAN)
    assert (("V", 0) in set(store.queues())) is is_killed, "a power cut may have taken what says that it lives"
    assert bodies(store, "U") == [b"new"]
    store.append([message("V", 0, b"again")])
    store.close()
    disk.remove_tree(filenames.consume_queues(ROOT))
    store = opened(_SETTINGS, disk=disk)
    assert bodies(store, "V") == [b"gone"] * (3 * is_killed) + [b"again"]
    store.close()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_topic_of_the_broker_that_lost_its_folder_was_not_deleted(is_known: bool) -> None:
    def play(store: Store) -> None:
        disk = store._parts.disk
        assert isinstance(disk, SimDisk)
        _write(disk, filenames.config(ROOT, "topics.json"), b'{"topicConfigTable": {"T": {}}}')
        store.append([message("T", 0, b"new")])
        if not is_known:
            store.append([message(names.OP_HALF_TOPIC, 0, b"ended") for _ in range(3)])
        store.close()
        disk.remove_tree(filenames.topic_queues(ROOT, names.OP_HALF_TOPIC))

    _, store = _back_from_rocketmq(1 << 20, play, first=names.OP_HALF_TOPIC if is_known else "T")
    assert store.report.start is Start.FOREIGN_CLEAN
    assert len(bodies(store, names.OP_HALF_TOPIC)) == (20 if is_known else 3)
    store.close()


def _table_of_topics(topics: list[str], changed_ms: int) -> bytes:
    table = {"dataVersion": {"timestamp": changed_ms}, "topicConfigTable": {topic: {} for topic in topics}}
    return json.dumps(table).encode()


@pytest.mark.parametrize("topic", ["T", "V"])
@pytest.mark.parametrize(
    ("what", "is_back"),
    [
        ("deleted", False),
        ("deleted, then killed", False),
        ("listed", True),
        ("older than the last message", True),
        ("without a time", True),
        ("empty", True),
        ("damaged", True),
        ("missing", True),
        ("ours was killed before", True),
    ],
)
def test_queues_of_a_deleted_topic_that_rocketmqs_broker_built_again_are_not_believed(
    topic: str, what: str, is_back: bool
) -> None:
    """T is known here, V was made meanwhile; each has its folder, as a start of RocketMQ's broker leaves it."""

    def play(store: Store) -> None:
        disk, now = store._parts.disk, store._parts.clock.now_ms()
        assert isinstance(disk, SimDisk)
        store.append([message("V", 0, b"%d" % number) for number in range(3)])
        store.append([message("U", 0, b"new")])
        store.close()
        path, away = filenames.config(ROOT, "topics.json"), sorted({"T", "U", "V"} - {topic})
        written = {
            "listed": _table_of_topics(["T", "U", "V"], now + 1),
            "older than the last message": _table_of_topics(away, 1),
            "without a time": json.dumps({"topicConfigTable": dict.fromkeys(away)}).encode(),
            "empty": b"{}",
            "damaged": b"{",
        }
        if what != "missing":
            _write(disk, path, written.get(what, _table_of_topics(away, now + 1)))
        _write(disk, f"{path}.bak", _table_of_topics(away, now + 1))
        if what == "deleted, then killed":
            disk.open(filenames.abort(ROOT), create=True).close()

    disk, store = _back_from_rocketmq(1 << 20, play, is_killed=what == "ours was killed before")
    assert (topic in {name for name, _ in store.queues()}) is is_back
    all_of_it = {("T", 0): 20, ("T", 1): 20, ("V", 0): 3, ("U", 0): 1}
    living = {queue: count for queue, count in all_of_it.items() if is_back or queue[0] != topic}
    assert {queue: len(bodies(store, *queue)) for queue in store.queues()} == living
    store.append([message(topic, 0, b"again")])
    store.close()
    disk.remove_tree(filenames.consume_queues(ROOT))
    store = opened(_SETTINGS, disk=disk)
    assert (bodies(store, topic, 0) == [b"again"]) is not is_back, "also where queues are built again"
    store.close()


def test_a_queue_that_expired_and_began_again_does_not_bury_its_topic() -> None:
    disk = SimDisk()
    table = QueueTable(disk, ROOT, QueueFiles(disk, 8, 64))
    for queue_id, begin, count in ((0, 9000, 3), (1, 4000, 9)):
        table.create("T", queue_id, 0).put(
            queues.pack_entries([(begin + 100 * number, 100, 0) for number in range(count)]), begin + 100 * count
        )
    base = QueueBase(8000, {"T": {0: (0, 40), 1: (0, 9)}}, {})
    assert foreign.without_made_again(table, base, 3000).ends == {"T": {1: (0, 9)}} and table.gravestones == {}


def test_a_table_of_queues_from_before_a_deletion_is_known_by_its_gravestones() -> None:
    lives = Generations(3, {"T": TopicGeneration(2, 500), "U": TopicGeneration(3, 800), "V": TopicGeneration(1, 100)})
    base = QueueBase(500, {}, {"U": 800})
    assert lives.newer_than(base) == ["T"], "the deletion of U was written with it, that of V before it"


def test_a_power_cut_between_the_two_files_of_a_deletion_does_not_raise_what_is_made_again() -> None:
    for cut_at in range(1, 12):
        disk, clock = SimDisk(), SimClock()
        store = opened(small(ROOT), clock, disk=disk)
        store.append([message("T", 0, b"old") for _ in range(5)])
        store.close()
        store = opened(small(ROOT), clock, disk=disk)
        disk.sync_all()
        disk.faults.power_cut_at = disk.faults.seen + cut_at
        try:
            store.delete_queues("T")
        except BaseException:  # noqa: BLE001  a power cut
            pass
        again = opened(small(ROOT), clock, disk=disk.crash())
        assert again.queue_range("T", 0) in (None, (0, 5)), cut_at
        again.close()


def _deleted_without_a_message(*, is_killed: bool = False) -> SimDisk:
    """Ours stopped in order; RocketMQ's broker started, deleted T, and wrote nothing into the log or its checkpoint."""
    disk = SimDisk()
    store = opened(_SETTINGS, disk=disk)
    store.append([message(topic, number % 2, b"%d" % number) for topic in "UT" for number in range(6)])
    store.close()
    disk.remove_tree(filenames.topic_queues(ROOT, "T"))
    _write(disk, filenames.config(ROOT, "topics.json"), b'{"topicConfigTable": {"U": {}}}')
    _write(disk, filenames.lock(ROOT), b"lock7\n")
    if is_killed:
        disk.open(filenames.abort(ROOT), create=True).close()
    disk.sync_all()
    return disk


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_topic_that_was_deleted_stays_away_where_rocketmqs_checkpoint_tells_nothing(is_killed: bool) -> None:
    disk = _deleted_without_a_message(is_killed=is_killed)
    store = opened(_SETTINGS, disk=disk)
    assert store.report.start is (Start.FOREIGN_CRASHED if is_killed else Start.FOREIGN_CLEAN)
    assert set(store.queues()) == {("U", 0), ("U", 1)}
    store.append([message("T", 0, b"new")])
    assert bodies(store, "T") == [b"new"] and store.queue_range("T", 0) == (0, 1)
    store.close()
    store = opened(_SETTINGS, disk=disk)
    assert store.report.start is Start.CLEAN, "what RocketMQ's broker did is taken in"
    assert bodies(store, "T") == [b"new"]
    store.close()


def test_a_start_without_room_takes_the_folder_over_with_the_first_cycle_that_has_room() -> None:
    disk, clock = SimDisk(), SimClock()
    opened(_SETTINGS, clock, disk=disk).close()
    _write(disk, filenames.lock(ROOT), b"lock7\n")
    disk.unlink(filenames.reserve(ROOT))
    disk.quota_bytes = disk._used_bytes()
    store = opened(_SETTINGS, clock, disk=disk)
    assert foreign.has_opened(disk, ROOT), "no recovery point of ours is there yet"
    disk.quota_bytes = 1 << 40
    clock.advance(10_000)
    for _ in store.tick(clock.now_ms()):
        pass
    store.append([message("T", 0, b"new")])
    crash(store)
    disk.restart()
    store = opened(_SETTINGS, disk=disk)
    assert store.report.start is Start.CRASHED, "our own log is read as ours"
    assert bodies(store, "T") == [b"new"]
    store.close()


def test_a_start_that_loses_its_power_anywhere_does_not_forget_who_had_the_folder() -> None:
    whole = _deleted_without_a_message()
    before = whole.faults.seen
    opened(_SETTINGS, disk=whole).close()
    for cut_at in range(1, whole.faults.seen - before):
        disk = _deleted_without_a_message()
        disk.faults.power_cut_at = disk.faults.seen + cut_at
        try:
            opened(_SETTINGS, disk=disk).close()
        except BaseException:  # noqa: BLE001  a power cut
            pass
        store = opened(_SETTINGS, disk=disk.crash())
        assert set(store.queues()) == {("U", 0), ("U", 1)}, cut_at
        store.close()


def test_what_followed_old_messages_that_came_back_stays_when_queues_are_built_again() -> None:
    def play(store: Store) -> None:
        store.append([message("T", 1, b"old"), message("T", 0, b"old")])
        store.delete_queues("T")
        store.append([message("T", 0, b"new")])

    disk, store = _back_from_rocketmq(1 << 20, play, first="U")
    assert bodies(store, "T", 1) == [b"old"], "a queue that was not made again, of a topic that was not known"
    store.append([message("T", 1, body) for body in (b"first", b"second")])
    store.close()
    for _ in range(2):
        disk.remove_tree(filenames.consume_queues(ROOT))
        store = opened(_SETTINGS, disk=disk)
        assert bodies(store, "T", 0) == [b"new"]
        assert bodies(store, "T", 1)[-2:] == [b"first", b"second"] and store.next_queue_offset("T", 1) == 3
        assert bodies(store, "T", 1, start=1) == [b"first", b"second"], "under their numbers"
        store.close()
