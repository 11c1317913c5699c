"""Who owns a queue, for how long, and who hears that it is free."""

from __future__ import annotations

from typing import Any

import pytest

from gantry.consume.locks import QueueLocks
from gantry.errors import StoreError
from gantry.metadata.journal import LOCKS
from gantry.wire import ha
from testkit.memory_state import MemoryState

KEY = ("T", 0)


def table(state: MemoryState | None = None, **more: float) -> QueueLocks:
    return QueueLocks(state or MemoryState(), 0.0, **more)  # type: ignore[arg-type]


def swept(locks: QueueLocks, now: float) -> None:
    for _ in locks.expire(now):
        pass


def test_a_queue_has_one_owner_until_the_lease_ends() -> None:
    locks = table()
    assert locks.lock("g", "a", KEY, 0.0)
    assert not locks.lock("g", "b", KEY, 60.0)
    assert locks.owner("g", KEY, 60.0) == "a"
    assert locks.lock("g", "b", KEY, 60.1)
    assert not locks.lock("g", "a", KEY, 60.2)


def test_a_renewed_lease_counts_from_the_last_request() -> None:
    locks = table()
    assert locks.lock("g", "a", KEY, 0.0)
    assert locks.lock("g", "a", KEY, 50.0)
    assert not locks.lock("g", "b", KEY, 110.0)
    assert locks.lock("g", "b", KEY, 110.1)


def test_other_groups_and_other_queues_have_locks_of_their_own() -> None:
    locks = table()
    assert locks.lock("g", "a", KEY, 0.0)
    assert locks.lock("h", "b", KEY, 0.0)
    assert locks.lock("g", "b", ("T", 1), 0.0)
    assert len(locks) == 3


def test_only_the_owner_gives_a_lock_back() -> None:
    locks = table()
    locks.lock("g", "a", KEY, 0.0)
    assert not locks.unlock("g", "b", KEY)
    assert not locks.lock("g", "b", KEY, 1.0)
    assert locks.unlock("g", "a", KEY)
    assert locks.lock("g", "b", KEY, 1.0)
    assert not locks.unlock("g", "a", KEY)


def test_who_was_refused_hears_of_the_end_of_a_lock_and_nobody_else_does() -> None:
    locks, told = table(), []
    locks.on_free(told.append)
    locks.lock("g", "a", KEY, 0.0)
    locks.lock("h", "a", KEY, 0.0)
    locks.lock("g", "b", KEY, 1.0)
    locks.unlock("h", "a", KEY)
    assert told == []
    locks.unlock("g", "a", KEY)
    assert told == ["g"]
    locks.lock("g", "a", KEY, 2.0)
    locks.lock("g", "b", KEY, 2.0)
    swept(locks, 62.0)
    assert told == ["g"]
    swept(locks, 62.1)
    assert told == ["g", "g"]
    assert len(locks) == 0


def test_a_full_table_gives_no_new_locks_and_keeps_the_old_ones() -> None:
    locks = table(locks_max=1)
    assert locks.lock("g", "a", KEY, 0.0)
    assert not locks.lock("g", "a", ("T", 1), 0.0)
    assert locks.lock("g", "a", KEY, 1.0)
    assert locks.lock("g", "b", KEY, 100.0), "one that has ended makes room for its own queue"


def test_a_group_has_no_more_locks_than_are_left_for_others() -> None:
    locks = table(locks_max=10)
    given = [locks.lock("g", "A", ("T", queue_id), 0.0) for queue_id in range(10)]
    assert given == [True] * 5 + [False] * 5
    assert locks.lock("h", "B", ("T", 0), 0.0) and locks.lock("g", "A", ("T", 0), 1.0)


def in_order(document: Any) -> dict[str, list[str]]:
    return {group: sorted(map(str, rows)) for group, rows in document["lockTable"].items()}


def test_locks_are_saved_in_steps_that_cost_what_has_changed() -> None:
    state = MemoryState()
    locks = QueueLocks(state, 0.0)
    for queue_id in range(2000):
        locks.lock("g", "A", ("T", queue_id), 0.0)
        locks.lock(f"g{queue_id % 50}", "B", ("T", queue_id), 0.0)
    assert len(list(locks.saving())) >= 2000 // 16
    assert in_order(state.load()) == in_order(locks.to_document())
    locks.unlock("g", "A", ("T", 7))
    locks.lock("g3", "B", ("U", 1), 0.0)
    assert len(list(locks.saving())) <= 2
    assert in_order(state.load()) == in_order(locks.to_document())
    assert list(locks.saving()) == []


def test_a_document_that_went_to_the_disk_is_not_written_again_for_a_renewal() -> None:
    state = MemoryState()
    locks = QueueLocks(state, 0.0)
    for _ in range(3):  # a client whose request timed out asks again
        locks.lock("g", "A", ("T", 0), 0.0)
        list(locks.saving(always=True))
    assert state.saves == 1
    locks.lock("g", "A", ("T", 1), 0.0)
    list(locks.saving(always=True))
    assert state.saves == 2


def test_a_save_that_has_not_handed_over_its_document_does_not_hide_the_changes_from_another() -> None:
    state = MemoryState()
    locks = QueueLocks(state, 0.0)
    locks.lock("g", "A", ("T", 0), 0.0)
    first = locks.saving()
    next(first)
    assert not locks.file.is_changed
    list(locks.saving(always=True))
    assert state.load() == {"lockTable": {"g": [{"clientId": "A", "queueId": 0, "topic": "T"}]}}
    list(first)


def test_a_sweep_goes_on_where_it_was_though_locks_change_meanwhile() -> None:
    locks = table()
    for queue_id in range(1000):
        locks.lock("g", "a", ("T", queue_id), 0.0)
    sweep = locks.expire(100.0)
    next(sweep)
    for queue_id in range(900, 1000):
        assert locks.lock("g", "b", ("T", queue_id), 100.0)
    for _ in sweep:
        pass
    assert len(locks) == 100
    assert locks.owner("g", ("T", 999), 100.0) == "b"


def test_owners_outlive_the_broker_with_a_whole_lease() -> None:
    state = MemoryState()
    before = table(state)
    before.lock("g", "a", KEY, 0.0)
    before.file.save_if_changed()
    saves = state.saves
    before.lock("g", "a", KEY, 50.0)
    before.file.save_if_changed()
    assert state.saves == saves, "a renewal is not worth a write"
    after = table(state)
    assert len(after) == 1
    assert not after.lock("g", "b", KEY, 60.0)
    assert after.lock("g", "b", KEY, 60.1)


@pytest.mark.parametrize("character", ["a", "\x01"])  # the other one takes six bytes in JSON
def test_owners_of_too_many_queues_are_told_as_far_as_a_frame_of_a_link_goes(character: str) -> None:
    locks = table()
    for queue_id in range(30_000):
        locks.lock("g", character * 512, ("T" * 127, queue_id), 0.0)
    told = locks.value("g")
    assert told is not None and told[0] == ["T" * 127, 0, character * 512]
    assert len(ha.metadata(1, [[LOCKS, "g", told]])) < ha.FRAME_BYTES_MAX
    slave = table()
    slave.follow("g", told, 0.0)
    assert 0 < len(slave) == len(told) < len(locks)


def test_a_table_that_is_none_stops_the_broker() -> None:
    with pytest.raises(StoreError, match="queueLocks"):
        table(MemoryState({"lockTable": {"g": "nonsense"}}))


def test_a_group_consumes_in_order_while_somebody_in_it_has_a_lock() -> None:
    locks = table()
    locks.lock("g", "a", KEY, 0.0)
    assert locks.holds_any("g", 60.0)
    assert not locks.holds_any("g", 60.1)
    assert not locks.holds_any("h", 0.0)


def test_a_lock_that_is_given_back_or_ends_makes_room_for_another_queue() -> None:
    locks = table(locks_max=1)
    assert locks.lock("g", "a", KEY, 0.0) and not locks.lock("g", "a", ("T", 1), 0.0)
    locks.unlock("g", "a", KEY)
    assert locks.lock("g", "a", ("T", 1), 0.0) and not locks.lock("g", "a", ("T", 2), 0.0)
    swept(locks, 1000.0)
    assert locks.lock("g", "a", ("T", 2), 1000.0)
