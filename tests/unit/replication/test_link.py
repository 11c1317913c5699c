"""The shell around a slave's link: what it does to its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gantry.errors import StoreError
from gantry.replication import master
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello, MasterStatus, Welcome, judge
from gantry.replication.haproof import Keys
from gantry.replication.link import SlaveLink
from gantry.replication.master import Feeding
from gantry.replication.slave import Following
from gantry.replication.timers import LINK_S
from gantry.wire import ha
from gantry.wire.ha import Ack, FrameType
from testkit.simclock import SimClock

SECRET = Keys(b"a secret of many bytes")
SLAVE = Hello("cluster", "broker-a", 1, "store-s", EpochTable(), 0, 0, 0, 1 << 20)


class CutWay(asyncio.Transport):
    """Takes what is written, and is never rid of it."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.calls: list[str] = []
        self.written = b""

    def setsockopt(self, *_: object) -> None:
        """Fine."""

    def write(self, data: Any) -> None:
        self.calls.append("write")
        self.written += bytes(data)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


async def test_a_link_that_ends_does_not_wait_until_a_cut_way_takes_what_was_said_last() -> None:
    way = CutWay()
    machine = Following(Keys(b"a secret of many bytes"), bytes(32), SLAVE, 0)
    link = SlaveLink(machine, None, SimClock(), LINK_S)  # type: ignore[arg-type]  # nothing comes
    link.connection_made(way)
    link.end("another master is named")
    assert link.ended.done() and link.reason == "another master is named"
    assert way.calls == ["write", "close"], "what was said last still gets its time"
    link.connection_lost(None)
    link.end("this broker stops")
    assert link.reason == "another master is named"


class Flushing:
    """A slave whose disk is busy: of 300 bytes 200 are flushed, and the welcome waits for `adopted`."""

    def __init__(self) -> None:
        self.flushed = 200
        self.adopted: Callable[[StoreError | None], None] = lambda error: None

    def held(self) -> int:
        return self.flushed

    def adopt(self, welcome: Welcome, done: Callable[[StoreError | None], None]) -> None:
        self.adopted = done


def brought(link: SlaveLink, actions: list[master.Action]) -> None:
    """What a master sends reaches the link."""
    data = b"".join(action.data for action in actions if isinstance(action, master.SendToSlave))
    link.get_buffer(len(data))[: len(data)] = data
    link.buffer_updated(len(data))


def body(said: bytes) -> memoryview:
    """Of the one frame."""
    assert len(said) == ha.size_of(said, ha.FRAME_BYTES_MAX)
    return memoryview(said)[ha.HEAD.size :]


async def test_what_is_flushed_while_the_link_is_made_is_acknowledged() -> None:
    table = EpochTable().begin(1, 0)
    hello = Hello("cluster", "broker-a", 1, "store-s", table, 0, 300, 100, 1 << 20)
    mine = MasterStatus("cluster", "broker-a", "store-m", 1, table, 0, 300, 1 << 20)
    sink, way = Flushing(), CutWay()
    feeding = Feeding(SECRET, b"m" * 32, lambda said: judge(mine, said, lambda end: said.tail), 1 << 20)
    link = SlaveLink(Following(SECRET, b"s" * 32, hello, sink.held()), sink, SimClock(), LINK_S)  # type: ignore[arg-type]
    link.connection_made(way)
    brought(link, feeding.preamble(way.written))
    brought(link, feeding.frame(FrameType.HELLO, body(way.written[ha.PREAMBLE_BYTES :])))
    sink.flushed = 300
    so_far = len(way.written)
    sink.adopted(None)
    assert feeding.frame(FrameType.ACK, body(way.written[so_far:])) == [master.Acked(Ack(300, 300, 0))]
    so_far = len(way.written)
    link.end_for(2)
    told, _ = feeding.frame(FrameType.PROMISED, body(way.written[so_far:]))
    assert told == master.Promised(2), "a master that cannot read the register learns so that it was sealed"
    so_far = len(way.written)
    link.end_for(2)
    assert len(way.written) == so_far and way.calls[-1] == "close"
