"""A life that a member believed in and its group does not have is taken back, whenever the machine dies over it."""

from __future__ import annotations

import random

import pytest

from gantry.errors import StoreError
from gantry.store import derived, filenames, reviving
from gantry.store.generations import TopicGeneration
from gantry.store.reviving import Revival
from testkit.simclock import SimClock
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.smallstore import bodies, message, opened, small

ROOT = "/s"
SETTINGS = small(ROOT, checkpoint_interval_ms=10**9)
BEFORE = [b"old%d" % number for number in range(30)]


def mourner(is_deleted_before: bool = False) -> tuple[SimDisk, TopicGeneration, TopicGeneration | None]:
    """A disk on which `orders` was deleted, with more of it and of others behind that; the life that is wrong, and the
    one that is right: none, or that of a deletion long before.
    """
    disk, clock = SimDisk(), SimClock()
    store = opened(SETTINGS, clock, disk=disk)
    if is_deleted_before:
        store.append([message(body=b"never again", queue_id=0), message(body=b"nor this", queue_id=3)])
        store.delete_queues("orders")
    right = store.generations.life("orders")
    store.append([message(body=body) for body in BEFORE])
    store.append([message(queue_id=1, body=b"other"), message("bills", body=b"bill")])
    store.delete_queues("orders")
    wrong = store.generations.life("orders")
    assert wrong is not None
    # What the group appended meanwhile: queue offsets go on there.
    store._table.heads[("orders", 0)] = len(BEFORE)
    store.append([message(body=b"new"), message("bills", body=b"paid")])
    assert bodies(store) == [b"new"], "or this test proves nothing"
    store.close()
    return disk, wrong, right


def assert_whole(disk: SimDisk, right: TopicGeneration | None) -> None:
    store = opened(SETTINGS, SimClock(), disk=disk)
    assert store.generations.life("orders") == right
    assert bodies(store) == [*BEFORE, b"new"] and bodies(store, queue_id=1) == [b"other"]
    assert bodies(store, "bills") == [b"bill", b"paid"]
    assert sorted(store.queues()) == [("bills", 0), ("orders", 0), ("orders", 1)]
    assert store.next_queue_offset("orders", 0) == len(BEFORE) + 1
    assert not disk.exists(filenames.revive(ROOT))
    store.close()


@pytest.mark.parametrize("is_deleted_before", [False, True])
def test_a_topic_that_is_revived_has_everything_of_its_life_again(is_deleted_before: bool) -> None:
    disk, wrong, right = mourner(is_deleted_before)
    reviving.note(disk, ROOT, {"orders": Revival(wrong, right)})
    assert_whole(disk, right)
    again = opened(SETTINGS, SimClock(), disk=disk)
    assert again.report.rebuilt == [], "once is enough"


@pytest.mark.parametrize("is_deleted_before", [False, True])
def test_it_is_whole_whenever_the_power_goes(is_deleted_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "_SPILL_BYTES", 200)  # parts of the queues are in their files long before the end
    rng = random.Random(7)
    for at in range(1, 1000):
        disk, wrong, right = mourner(is_deleted_before)
        reviving.note(disk, ROOT, {"orders": Revival(wrong, right)})
        disk.faults = Faults(power_cut_at=at)
        try:
            opened(SETTINGS, SimClock(), disk=disk).close()
        except PowerCut:
            for after in (disk.crash(), disk.crash(rng), disk.crash(rng), disk.restart()):
                assert_whole(after, right)
            continue
        break
    assert 60 < at < 999, f"{at} operations"


def test_one_that_was_deleted_in_yet_another_life_is_left_alone() -> None:
    disk, wrong, _ = mourner()
    reviving.note(disk, ROOT, {"orders": Revival(TopicGeneration(wrong.generation + 5, wrong.begins), None)})
    store = opened(SETTINGS, SimClock(), disk=disk)
    assert bodies(store) == [b"new"] and store.generations.life("orders") == wrong
    assert not disk.exists(filenames.revive(ROOT))


def test_what_is_noted_twice_is_done_once_and_what_was_noted_before_stays() -> None:
    disk = SimDisk()
    disk.make_folders(filenames.ours(ROOT))
    one, other = Revival(TopicGeneration(1, 10), None), Revival(None, TopicGeneration(2, 20))
    assert reviving.load(disk, ROOT) == {}
    reviving.note(disk, ROOT, {"a": one})
    reviving.note(disk, ROOT, {"b": other})
    assert reviving.load(disk, ROOT) == {"a": one, "b": other}
    reviving.done(disk, ROOT, ["a", "b"])
    assert reviving.load(disk, ROOT) == {} and disk.files() == {}


@pytest.mark.parametrize("text", [b"nonsense", b'{"a": 1}', b'{"a": {"was": [1], "now": null}}'])
def test_what_cannot_be_read_is_named(text: bytes) -> None:
    disk = SimDisk()
    disk.make_folders(filenames.ours(ROOT))
    file = disk.open(filenames.revive(ROOT), create=True)
    file.pwrite(text, 0)
    file.close()
    with pytest.raises(StoreError, match=r"revive\.json"):
        reviving.load(disk, ROOT)
