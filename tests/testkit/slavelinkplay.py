"""A slave links and a connector over real sockets in one process, with logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

from gantry.clock import SystemClock
from gantry.errors import DiskFullError, StoreError
from gantry.replication.catch_up_pacing import CatchUpPacing
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Hello, MasterStatus, No, Welcome, judge
from gantry.replication.haproof import Keys
from gantry.replication.link import Connector
from gantry.replication.link_ends import LinkRules, LinkWaits
from gantry.replication.slave_links import SlaveLinks
from gantry.replication.timers import BEAT_S, LINK_S
from gantry.wire.ha import Ack

SECRET = Keys(b"a secret of many bytes")
MINE = MasterStatus("cluster", "broker-a", "store-m", 1, table_of([(1, 0)]), 0, 0, 1 << 20)
OFFSETS: list[object] = ["offsets of a group"]  # records do not need them
SLAVE = Hello("", "broker-a", 1, "store-s", table_of([]), 0, 0, 0, 1 << 20)


class Master:
    """A log in memory; implements `link_ends.MasterEnd`."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.confirmed = 0
        self.numbered: list[tuple[int, list[object]]] = []
        self.acks: dict[int, Ack] = {}
        self.gone: list[tuple[int, bool]] = []
        self.warm_from = 0  # what stands before it has to be brought in
        self.brought: list[int] = []
        self.committed: list[bytes] = []
        self.needs: set[int] = set()
        self.needed_by = lambda: max((number for number, changes in self.numbered if changes != OFFSETS), default=0)

    @property
    def marks(self) -> tuple[int, int, int]:
        return len(self.log), self.confirmed, 0

    def judge(self, hello: Hello) -> Welcome | No:
        return judge(replace(MINE, end=len(self.log)), hello, lambda end: hello.tail)

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        end = min(len(self.log), start + bytes_max)
        return memoryview(bytes(self.log[start:end])), end

    def bring_in(self, start: int, bytes_max: int, done: Callable[[], None]) -> int:
        if start >= self.warm_from:
            return 0
        self.brought.append(start)
        asyncio.get_running_loop().call_soon(done)
        return bytes_max

    @property
    def needed(self) -> int:
        return self.needed_by()

    def changes(self, after: int) -> Iterator[tuple[int, list[object]]]:
        return (one for one in list(self.numbered) if one[0] > after)

    def came(self, hello: Hello, address: str) -> str:
        return ""

    def is_waited_for(self, place: int) -> bool:
        return place in self.needs

    def acked(self, broker_id: int, ack: Ack) -> None:
        self.acks[broker_id] = ack

    def commits(self, body: bytes) -> None:
        self.committed.append(body)

    def promised(self, place: int, epoch: int) -> None:
        raise AssertionError("nobody asked")

    def went(self, broker_id: int, is_leaving: bool) -> None:
        self.gone.append((broker_id, is_leaving))


class Slave:
    """A copy in memory; implements `link_ends.SlaveEnd`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.copy = bytearray()
        self.confirmed = 0
        self.changes: list[tuple[int, list[object]]] = []
        self.fails = self.is_full = False
        self.log_start = 0  # of the master
        self.described = SLAVE

    def hello(self) -> tuple[Hello, int]:
        return replace(self.described, end=len(self.copy), epochs=MINE.epochs), len(self.copy)

    def master(self) -> str:
        return self.address

    def adopt(self, welcome: Welcome, done: Callable[[StoreError | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, None)

    def promise(self, epoch: int, done: Callable[[StoreError | None], None]) -> None:
        raise AssertionError("nobody asked")

    def reshape(self, welcome: Welcome) -> None:
        raise AssertionError("nothing has to be cut here")

    def append(self, start: int, records: memoryview) -> int:
        if self.fails:
            raise StoreError("the disk says no")
        if self.is_full:
            raise DiskFullError("no room")
        assert start == len(self.copy)
        self.copy += records
        return len(self.copy)

    def held(self) -> int:
        return len(self.copy)

    def apply(self, number: int, changes: list[object]) -> None:
        self.changes.append((number, changes))

    def marks(self, confirmed: int, log_start: int, written: int) -> None:
        self.confirmed, self.log_start = confirmed, log_start

    def ended(self) -> None:
        pass


class Ahead(SystemClock):
    """A clock that can be moved, and stopped."""

    by_s = 0.0
    stopped_s: float | None = None

    def monotonic(self) -> float:
        return (super().monotonic() if self.stopped_s is None else self.stopped_s) + self.by_s


class Play:
    """A slave links and a connector of one process."""

    def __init__(self) -> None:
        self.master = Master()
        self.said: list[str] = []
        self.clock = Ahead()
        self.wanted_s = 0.0
        pacing, rules = CatchUpPacing(lambda: self.wanted_s), LinkRules(BEAT_S, LINK_S, lambda: True)
        self.slave_links = SlaveLinks(SECRET, 1, self.master, self.clock, lambda: b"m" * 32, pacing, rules)
        self.slave = Slave("")
        self.secret = SECRET

    async def start(self) -> None:
        await self.slave_links.start("127.0.0.1", 0)
        self.slave.address = f"127.0.0.1:{self.slave_links.port}"
        self.connector = Connector(
            self.secret,
            self.slave,
            SystemClock(),
            lambda: b"s" * 32,
            lambda cause, text: self.said.append(text),
            LinkWaits(),
        )
        self.task = asyncio.ensure_future(self.connector.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.slave_links.close()


@asynccontextmanager
async def playing(secret: Keys = SECRET) -> AsyncIterator[Play]:
    """Start a play, and stop it at the end."""
    one = Play()
    one.secret = secret
    await one.start()
    try:
        yield one
    finally:
        await one.stop()
