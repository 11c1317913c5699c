from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gantry.errors import StoreError
from gantry.store import generations
from gantry.store.disk import RealDisk
from gantry.store.generations import Generations
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small


def test_every_deletion_gives_a_number_that_no_topic_had_before() -> None:
    lives = Generations(0, {})
    assert (lives.of("a"), lives.begin("a", 10), lives.begin("b", 20), lives.begin("a", 30)) == (0, 1, 2, 3)
    assert (lives.of("a"), lives.of("b"), lives.gravestones()) == (3, 2, {"a": 30, "b": 20})
    lives.forget(40, ())
    assert lives.all() == {} and lives.begin("a", 50) == 4


def test_a_topic_that_has_queues_keeps_its_number_when_the_log_has_passed_its_past() -> None:
    lives = Generations(0, {})
    lives.begin("living", 10)
    lives.begin("gone", 10)
    lives.begin("young", 50)
    lives.forget(20, {"living"})
    assert lives.all() == {"living": 1, "young": 3}


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    lives = Generations(0, {})
    lives.begin("a", 10)
    generations.save(RealDisk(), str(tmp_path), lives.to_document())
    again = generations.load(RealDisk(), str(tmp_path))
    assert again.to_document() == lives.to_document() and again.begin("b", 11) == 2


@pytest.mark.parametrize("text", ['{"last": "x"}', '{"last": 1, "topics": {"a": {"generation": 1}}}', "nonsense"])
def test_a_damaged_table_is_named_and_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "topicGenerations.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StoreError, match=r"topicGenerations\.json.*restore"):
        generations.load(RealDisk(), str(tmp_path))


def test_what_is_derived_may_go_with_our_own_folder_and_no_old_record_comes_back(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message(body=b"old%d" % number) for number in range(20)])
    store.delete_queues("orders")
    store.append([message(body=b"new")])
    store.close()
    for name in ("consumequeue", "gantry", "checkpoint"):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    store = opened(small(tmp_path), clock)
    assert store.report.records == 21 and bodies(store) == [b"new"]
    assert store.generations.of("orders") == 1
    store.close()
    document = json.loads((tmp_path / "config" / "topicGenerations.json").read_bytes())
    assert document["topics"]["orders"]["generation"] == 1


def test_numbers_go_on_over_every_kind_of_stop(tmp_path: Path) -> None:
    clock = SimClock()
    for number in range(1, 5):
        store = opened(small(tmp_path), clock)
        store.append([message(body=b"%d" % number)])
        store.delete_queues("orders")
        assert store.generations.of("orders") == number
        if number % 2:
            crash(store)
        else:
            store.close()


def test_what_is_written_where_a_power_cut_took_the_old_topics_end_belongs_to_the_new_one() -> None:
    clock, disk = SimClock(), SimDisk()
    # Nothing is flushed by itself: the deletion is durable, and what was written before it is not.
    settings = small("/s", flush_interval_ms=10**9, flush_full_ms=10**9, checkpoint_interval_ms=10**9)
    store = opened(settings, clock, disk=disk)
    store.append([message(body=b"old" * 100) for _ in range(10)])
    store.delete_queues("orders")
    after = disk.crash()
    store = opened(settings, clock, disk=after)
    assert store.report.end == 0, "the power took them all"
    store.append([message(body=b"new")])
    store.close()
    store = opened(settings, clock, disk=after)
    assert bodies(store) == [b"new"]
    crash(store)
    after.remove_tree("/s/consumequeue")
    assert bodies(opened(settings, clock, disk=after)) == [b"new"]
