"""The shell around a slave's link: what it does to its connection."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello
from gantry.replication.haproof import Keys
from gantry.replication.link import SlaveLink
from gantry.replication.slave import Following
from testkit.simclock import SimClock

SLAVE = Hello("cluster", "broker-a", 1, "store-s", EpochTable(), 0, 0, 0, 1 << 20)


class CutWay(asyncio.Transport):
    """Takes what is written, and is never rid of it."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.calls: list[str] = []

    def setsockopt(self, *_: object) -> None:
        """Fine."""

    def write(self, data: Any) -> None:
        self.calls.append("write")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


def test_a_link_that_ends_does_not_wait_until_a_cut_way_takes_what_was_said_last() -> None:
    async def play() -> None:
        way = CutWay()
        machine = Following(Keys(b"a secret of many bytes"), bytes(32), SLAVE, 0)
        link = SlaveLink(machine, None, SimClock())  # type: ignore[arg-type]  # nothing comes
        link.connection_made(way)
        link.end("another master is named")
        assert link.ended.done() and link.reason == "another master is named"
        assert way.calls == ["write", "close"], "what was said last still gets its time"
        link.connection_lost(None)
        link.end("this broker stops")
        assert link.reason == "another master is named"

    asyncio.run(play())
