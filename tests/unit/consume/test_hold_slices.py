"""Many held pulls that are woken together, or go together, keep nobody waiting."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gantry.consume.hold import HeldPulls
from gantry.leaves import frames
from testkit.fake_connection import FakeConnection


class Turns:
    """A loop whose turns the test takes."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def take(self) -> bool:
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        return bool(calls)


def test_many_that_are_woken_together_are_answered_in_slices_once_each() -> None:
    turns, woken = Turns(), []
    held = HeldPulls(10_000, lambda one: woken.append(one.pull.opaque), None, lambda call: turns.calls.append(call))
    connections = [FakeConnection() for _ in range(500)]
    for opaque, connection in enumerate(connections):
        held.hold(connection, frames.Pull(opaque=opaque, topic="T", group="g"), None, 10.0)  # type: ignore[arg-type]
    new: list[Any] = [SimpleNamespace(tags_code=0, queue_offset=0)]
    held.on_dispatched("T", 0, 1, new)
    held.on_dispatched("T", 0, 2, new)
    assert woken == list(range(64)) and len(held) == 436
    held.connection_closed(connections[499])  # type: ignore[arg-type]
    sizes = []
    while True:
        before = len(woken)
        if not turns.take():
            break
        sizes.append(len(woken) - before)
    assert woken == list(range(499)) and max(sizes) == 64
    assert len(held) == 0 and not held._by_queue and not any(held._by_connection.values())


def test_a_deleted_topic_and_a_closed_connection_with_many_pulls_take_slices() -> None:
    turns, woken = Turns(), []
    held = HeldPulls(100_000, lambda one: woken.append(one.pull.opaque), None, lambda call: turns.calls.append(call))
    gone, other = FakeConnection(), FakeConnection()
    for opaque in range(5000):
        owner = gone if opaque % 2 else other
        held.hold(owner, frames.Pull(opaque=opaque, topic="T", queue_id=opaque % 7), None, 10.0)  # type: ignore[arg-type]
    held.connection_closed(gone)  # type: ignore[arg-type]
    assert len(held) == 4000, "a thousand at once"
    held.release_topic("T")
    assert 0 < len(woken) <= 64
    while turns.take():
        pass
    assert sorted(woken) == list(range(0, 5000, 2)) and len(held) == 0
    assert (held._by_queue, held._due, held._gone) == ({}, {}, {})
    assert list(held._by_connection.items()) == [(other, {})], "until it closes"
    assert not any(held._by_slot.values())
