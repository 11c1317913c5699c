"""A held pull that goes in any way makes room for another one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.consume.hold import HeldPulls
from gantry.leaves import frames
from testkit.fake_connection import FakeConnection


@pytest.mark.parametrize(
    "leave", ["on_dispatched", "sweep", "release_topic", "release_group", "release_all", "connection_closed", "slices"]
)
def test_every_way_out_makes_room(leave: str) -> None:
    held, connection = HeldPulls(4000, lambda pull: None), FakeConnection()
    peer: Any = connection
    count = 1500 if leave == "slices" else 20
    for opaque in range(count):
        held.hold(peer, frames.Pull(opaque=opaque, topic="T", queue_id=0, queue_offset=0), None, 10.0)
    assert len(held) == count and held._units >= count
    (of_queue,), of_connection = held._by_queue.values(), held._by_connection[peer]
    arrived: list[Any] = [SimpleNamespace(tags_code=0, queue_offset=0, properties=b"")]
    ways: dict[str, Callable[[], object]] = {
        "on_dispatched": lambda: held.on_dispatched("T", 0, 1, arrived),
        "sweep": lambda: list(held.sweep(100.0)),
        "release_topic": lambda: held.release_topic("T"),
        "release_group": lambda: held.release_group("T", 0, ""),
        "release_all": held.release_all,
        "connection_closed": lambda: held.connection_closed(peer),
        "slices": lambda: held.on_dispatched("T", 0, 1, arrived),
    }
    ways[leave]()
    assert (len(held), held._units, of_queue.units) == (0, 0, 0)
    assert leave == "connection_closed" or of_connection.units == 0


def test_a_pull_that_is_answered_is_taken_from_the_shares_of_its_queue_and_of_its_connection() -> None:
    held, connection = HeldPulls(2000, lambda pull: None), FakeConnection()
    peer: Any = connection
    for offset in (0, 5):
        held.hold(peer, frames.Pull(opaque=offset, topic="T", queue_id=0, queue_offset=offset), None, 10.0)
    arrived: list[Any] = [SimpleNamespace(tags_code=0, queue_offset=0, properties=b"")]
    held.on_dispatched("T", 0, 1, arrived)
    (left,) = held._by_connection[peer]
    assert left.pull.queue_offset == 5 and left.units == held._units
    assert left.kinds.units == left.siblings.units == left.units
