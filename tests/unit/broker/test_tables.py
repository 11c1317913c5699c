from __future__ import annotations

from pathlib import Path

import pytest

from gantry.broker import tables
from gantry.broker.config import Role
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from testkit.memory_state import MemoryState
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
