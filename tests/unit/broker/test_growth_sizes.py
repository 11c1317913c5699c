"""What the loop does with tables at the size that they may have, measured in CPU time of the thread.

How that is measured: `testkit.growing`.  In `make test` tables have a twentieth of their size; the slow variant has all
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from gantry.broker.registration_body import BrokerIdentity, RegistrationSource
from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.hold import HeldPulls
from gantry.consume.locks import QueueLocks
from gantry.leaves import frames, keys
from gantry.metadata.clients import ConsumerGroup, Consumption
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.journal import OFFSET, Journal
from gantry.metadata.offset_handlers import OffsetHandlers
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import GroupConfig, Subscription
from gantry.model.topic import TopicConfig
from gantry.pop.assignment import Mode
from gantry.pop.modes import Modes
from gantry.schedule.book import DelayBook
from gantry.schedule.cancels import Cancels
from gantry.store import statefile
from gantry.store.keyindex import KeyIndex
from gantry.store.keysearch import KeyQuestion, search
from gantry.store.queuefiles import QueueFiles
from gantry.store.queuetable import QueueTable
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.fake_connection import FakeConnection
from testkit.growing import QUICK_PATIENCE, QUICK_SHARE, Grown, Steps, check, step, steps_of
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk


class NoFile:
    """A file that is empty, and takes everything as the housekeeper's job gets it."""

    def load(self) -> None:
        return None

    def save(self, table: dict[str, object]) -> None:
        statefile.contents_of(table)

    def retry(self) -> None:
        return None


class Anything:
    """Has every attribute, and answers every call with one like itself."""

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *given: Any) -> Any:
        return Anything()


def offsets_of(size: int) -> Offsets:
    offsets = Offsets(NoFile(), SimClock())  # type: ignore[arg-type]
    for number in range(size):
        offsets.commit(f"g{number % 10}", f"T{number // 10}", 0, 1)
    return offsets


def all_offsets(size: int) -> Callable[[], Steps]:
    offsets = offsets_of(size // 2)
    for number in range(min(size // 10, 50_000)):
        offsets.reset("h", f"U{number}", 0, 1, marks=True)
    handlers = OffsetHandlers(offsets, *[Anything()] * 6)
    asked = request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    return lambda: steps_of(handlers.all(FakeConnection(), asked))  # type: ignore[arg-type]


def offsets_saved(size: int) -> Callable[[], Steps]:
    offsets = offsets_of(size)
    list(offsets.saving())

    def change_and_save() -> Steps:
        offsets.commit("g1", "T1", 0, offsets.query("g1", "T1", 0) + 1)
        return offsets.saving()

    return change_and_save


def groups_saved(size: int) -> Callable[[], Steps]:
    groups = Groups(NoFile(), SimClock(), GroupSettings(groups_max=2 * size))  # type: ignore[arg-type]
    for number in range(size):
        groups.ensure(f"g{number}")
    numbers = iter(range(1 << 30))

    def change_and_save() -> None:
        groups.put(GroupConfig("g5", retry_queues=next(numbers)))
        groups.file.save_if_changed()

    return lambda: step(change_and_save)


def queues_of(size: int) -> QueueTable:
    """Return a table of queues whose records have all gone from a log that begins at 1000."""
    disk = SimDisk()
    table = QueueTable(disk, "/s", QueueFiles(disk, 1000, together_min=64))
    for number in range(size):
        queue = table.create(f"T{number // 8}", number % 8, 5)
        table.heads[queue.topic, queue.queue_id] = 5
    return table


def queue_ends_told(size: int) -> Callable[[], Steps]:
    table = queues_of(size)
    return lambda: table.expired_ends(1000)


def base_made(size: int) -> Callable[[], Steps]:
    table, made = queues_of(size), list[object]()

    def run() -> Steps:
        for found in table.base(1000):
            made.append(found)  # the housekeeper gets it, and frees it
            yield

    return run


def topic_deleted(size: int) -> Callable[[], Steps]:
    """Of a topic with as many queues as others have together."""
    table = queues_of(size)
    for queue_id in range(size):
        table.create("T", queue_id, 5)
        table.heads["T", queue_id] = 5
    return lambda: step(lambda: table.delete("T", 1000))


def old_files_looked_for(size: int) -> Callable[[], Steps]:
    table = queues_of(size)
    return lambda: table.drop_before(1000)


def everything_told(size: int) -> Callable[[], Steps]:
    offsets, journal = offsets_of(size), Journal()
    journal.carry(OFFSET, offsets.keys(), offsets.value)
    return lambda: journal.after(0)


def long_chain_searched(size: int) -> Callable[[], Steps]:
    """All of these entries of the key index are in one chain, and none has the key."""
    index = KeyIndex(SimDisk(), "/s", SimClock(), 1, size + 2)
    piece = b"".join(keys.FOUND.pack(number + 1, number, 1000) for number in range(size // 100))
    for _ in range(100):
        index._writable(1000).put(piece)

    class Searched:
        """A store that has this index, and as much of it as a search uses."""

        def __init__(self) -> None:
            self.reader = self

        def walk(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[object]:
            return index.walk(topic, key, begin_ms, end_ms)

    return lambda: search(Searched(), KeyQuestion("orders", "wanted"))  # type: ignore[arg-type]


def registration_made(size: int) -> Callable[[], Steps]:
    topics = Topics(NoFile(), SimClock(), TopicSettings("b", "c", topics_max=2 * size))  # type: ignore[arg-type]
    for number in range(size):
        topics.auto_create(f"T{number}", "TBW102", 4, False)
    identity = BrokerIdentity("c", "b", 0, "a:1", "a:2")

    def register() -> Steps:
        return steps_of(RegistrationSource(identity, topics).encode())

    return register


def topic_saved(size: int) -> Callable[[], Steps]:
    topics = Topics(NoFile(), SimClock(), TopicSettings("b", "c", topics_max=2 * size))  # type: ignore[arg-type]
    for number in range(size):
        topics.auto_create(f"T{number}", "TBW102", 4, False)
    numbers = iter(range(1, 1 << 16))

    def change_and_save() -> None:
        topics.put(TopicConfig("T5", next(numbers), 4))
        topics.file.save_if_changed()

    return lambda: step(change_and_save)


def locks_saved(size: int) -> Callable[[], Steps]:
    locks = QueueLocks(NoFile(), 0.0)  # type: ignore[arg-type]
    for number in range(size):
        locks.lock(f"g{number // 10}", "A", ("T", number), 0.0)
    list(locks.saving())
    numbers = iter(range(1 << 30))

    def change_and_save() -> Steps:
        locks.lock("h", "A", ("U", next(numbers)), 0.0)
        return locks.saving()

    return change_and_save


def locks_ended(size: int) -> Callable[[], Steps]:
    locks = QueueLocks(NoFile(), 0.0)  # type: ignore[arg-type]
    for number in range(size):
        locks.lock(f"g{number // 10}", "A", ("T", number), 0.0)
    return lambda: locks.expire(1000.0)


def modes_saved(size: int) -> Callable[[], Steps]:
    modes = Modes(NoFile())  # type: ignore[arg-type]
    for number in range(size):
        modes.put(f"T{number // 2}", f"g{number % 2}", Mode())
    list(modes.saving())
    numbers = iter(range(1, 1 << 19))

    def change_and_save() -> Steps:
        modes.put("T1", "g1", Mode(share_queues=next(numbers)))
        return modes.saving()

    return change_and_save


def filters_saved(size: int) -> Callable[[], Steps]:
    filters = ConsumerFilters(NoFile(), SimClock(), lambda cause, text: None)  # type: ignore[arg-type]
    versions = iter(range(1, 1 << 30))

    def beat(group: str) -> None:
        wanted = Subscription.from_json(
            {"topic": f"T{group}", "subString": "a > 1", "expressionType": "SQL92", "subVersion": next(versions)}
        )
        filters.heard(None, ConsumerGroup(group, Consumption("", "", "")), [wanted])  # type: ignore[arg-type]

    for number in range(size):
        beat(f"g{number}")
    list(filters.saving())

    def change_and_save() -> Steps:
        beat("g1")
        return filters.saving()

    return change_and_save


def cancels_forgotten(size: int) -> Callable[[], Steps]:
    cancels = Cancels()
    for number in range(size):
        cancels.add(1_700_000_000_000 + 2 * number, b"orders%032x" % number)
    return lambda: cancels.forget_before(1_800_000_000_000)


def delay_dispatched(size: int) -> Callable[[], Steps]:
    """Spread over seven days."""
    book, now_ms = DelayBook(), 1_700_000_000_000
    book.timer.horizon_ms = now_ms
    for number in range(size):
        book.came(number, now_ms + 60_000 + number * (7 * 86_400_000 // size))
    return lambda: step(lambda: book.advance(now_ms))


def held_pulls(size: int) -> HeldPulls:
    held = HeldPulls(10 * size, lambda one: None, None, lambda call: None)
    for number in range(size):
        pull = frames.Pull(topic="T", queue_id=0, opaque=number)
        held.hold(FakeConnection(), pull, frozenset({1}), 1e9)  # type: ignore[arg-type]
    return held


def dispatch_to_held_pulls(size: int) -> Callable[[], Steps]:
    held = held_pulls(size)
    return lambda: step(lambda: held.on_dispatched("T", 0, 1, [Placed(0, 2)]))  # type: ignore[list-item]


def held_pulls_looked_at(size: int) -> Callable[[], Steps]:
    held = held_pulls(size)
    return lambda: held.sweep(2e9)


class Placed(NamedTuple):
    """What a held pull reads of a new message."""

    queue_offset: int
    tags_code: int


GROWN = [
    # A body of 13 MB is joined in one piece; more than 15 MiB are refused.
    Grown("all offsets (43)", 500_000, all_offsets, is_flat=False, step_s=0.015),
    Grown("save offsets", 500_000, offsets_saved, is_flat=True),
    Grown("save filters", 50_000, filters_saved, is_flat=False),
    Grown("save queue locks, lock (41)", 200_000, locks_saved, is_flat=False),
    Grown("save modes, set a mode (401)", 100_000, modes_saved, is_flat=False),
    Grown("queue locks that end", 200_000, locks_ended, is_flat=False, attempts=1),
    Grown("create a topic", 10_000, topic_saved, is_flat=True),
    Grown("a whole registration, at the broker", 10_000, registration_made, is_flat=False),
    Grown("a search in a chain of the key index", 10_000_000, long_chain_searched, is_flat=False),
    Grown("next offsets of expired queues, for a slave", 100_000, queue_ends_told, is_flat=False),
    Grown("queue-base table: deletions, retention", 100_000, base_made, is_flat=False),
    # In one piece: who asks for the topic right after its deletion finds nothing.
    Grown("queues of a deleted topic (215)", 65_536, topic_deleted, is_flat=False, step_s=0.1, attempts=1),
    Grown("queue files of a dropped segment", 100_000, old_files_looked_for, is_flat=False),
    Grown("all metadata, for a new slave", 500_000, everything_told, is_flat=False, step_s=0.025),
    Grown("cancels that are over", 1_000_000, cancels_forgotten, is_flat=False, attempts=1),
    Grown("a delayed message is dispatched", 1_000_000, delay_dispatched, is_flat=True),
    Grown("a message for held pulls", 100_000, dispatch_to_held_pulls, is_flat=True),
    Grown("held pulls whose time is over", 100_000, held_pulls_looked_at, is_flat=False, attempts=1),
    Grown("save groups, alter a group (200)", 50_000, groups_saved, is_flat=True),
]


@pytest.mark.parametrize("grown", GROWN, ids=lambda grown: grown.name)
def test_no_step_is_long_with_large_tables(grown: Grown) -> None:
    check(grown, grown.size // QUICK_SHARE, patience=QUICK_PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("grown", GROWN, ids=lambda grown: grown.name)
def test_no_step_is_long_with_tables_of_full_size(grown: Grown) -> None:
    check(grown, grown.size)
