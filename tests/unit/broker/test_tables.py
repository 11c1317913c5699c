from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gantry.broker import tables
from gantry.broker.settings.config import Role
from gantry.errors import DiskFullError
from gantry.metadata.offsets import Offsets
from gantry.metadata.starts import GroupStarts
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.topic import TopicConfig
from testkit.brokerplay import peer, running_broker, send
from testkit.memory_state import MemoryState
from testkit.popplay import GROUP, pop_request
from testkit.simclock import SimClock
from testkit.smallstore import message, opened, small


@pytest.mark.parametrize(
    ("role", "offset", "saves"), [(Role.ASYNC_MASTER, 2, 1), (Role.SYNC_MASTER, 2, 1), (Role.SLAVE, 5, 0)]
)
def test_offsets_are_bounded_after_every_stop_but_those_of_a_slave_are_its_masters(
    tmp_path: Path, role: Role, offset: int, saves: int
) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message("orders"), message("orders")])
    topics_file, offsets_file = MemoryState(), MemoryState({"offsetTable": {"orders@readers": {"0": 5}}})
    topics = Topics(topics_file, clock, TopicSettings("b", "c", True, 4, 100))
    offsets = Offsets(offsets_file, clock)
    tables.agree(store, topics, offsets, role)
    assert (offsets.query("readers", "orders", 0), offsets_file.saves) == (offset, saves)
    assert topics.get("orders") is not None and topics_file.saves == 1
    again = Offsets(offsets_file, clock)
    tables.agree(store, topics, again, role)
    assert (again.query("readers", "orders", 0), offsets_file.saves) == (offset, saves), "nothing was left to correct"
    store.close()


def test_a_group_whose_begin_a_crash_took_gets_the_first_message_of_a_queue_that_comes_next(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message("orders")])
    beyond = store.written.offset + 1000  # where the log ended before a power cut, or on the master of before
    offsets_file = MemoryState({"offsetTable": {"orders@g": {"0": 1}}, "gantryBegins": {"orders@g": [beyond, 7]}})
    topics, offsets = Topics(MemoryState(), clock, TopicSettings("b", "c", True, 4, 100)), Offsets(offsets_file, clock)
    topics.ensure(TopicConfig("orders", read_queues=4, write_queues=4))
    tables.agree(store, topics, offsets, Role.SLAVE)
    assert offsets.begins.get("orders@g").log_offset == beyond, "a slave's are those of its master"
    tables.bound(store, offsets)
    assert offsets_file.saves == 1
    store.append([message("orders", queue_id=1) for _ in range(20)])
    list(store.tick(clock.now_ms()))
    starts = GroupStarts(Offsets(offsets_file, clock), topics, store, 100)
    assert starts.given("g", "orders", 1) == 0
    store.close()


async def test_other_brokers_hear_by_the_wall_clock_since_when_a_group_reads(tmp_path: Path) -> None:
    """Else a broker whose clock was ahead once would let groups skip the messages of queues elsewhere."""
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert broker.parts is not None
        broker.parts.clock.reach(broker.parts.clock.look() + 86_400_000)
        assert (await client.call(send("orders", b"m"))).code == 0
        assert (await client.call(pop_request())).code == 0
        began = broker.parts.offsets.began(GROUP, "orders")
        assert began is not None and abs(began.at_ms - time.time() * 1000) < 3_600_000


class FullState(MemoryState):
    """Its disk has no room at first."""

    has_room = False

    def save_now(self, table: Mapping[str, object]) -> None:
        if not self.has_room:
            raise DiskFullError("no room")
        super().save_now(table)


def test_what_finds_no_room_is_right_in_memory_and_nothing_is_taken_before_it_is_saved(tmp_path: Path) -> None:
    clock = SimClock()
    store = opened(small(tmp_path), clock)
    store.append([message("orders"), message("orders")])
    files = topics_file, offsets_file = FullState(), FullState({"offsetTable": {"orders@readers": {"0": 5}}})
    offsets = Offsets(offsets_file, clock)
    tables.agree(store, Topics(topics_file, clock, TopicSettings("b", "c", True, 4, 100)), offsets, Role.ASYNC_MASTER)
    assert offsets.query("readers", "orders", 0) == 2
    for has_room in (False, True):
        topics_file.has_room = offsets_file.has_room = has_room
        for _ in range(10):  # checkpoints, for which there is room
            assert [state.saves for state in files] == [0, 0]
            for is_owed in (False, True):
                with pytest.raises(DiskFullError, match="no room"):
                    store.append([message("orders")], is_owed=is_owed)
            clock.advance(2_000)
            list(store.tick(clock.now_ms()))
            if has_room and offsets_file.saves:
                break
    assert [state.saves for state in files] == [1, 1]
    store.append([message("orders")])
    store.close()
