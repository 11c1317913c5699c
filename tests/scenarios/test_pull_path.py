"""Pulls over real sockets from a store in a real folder: what the mapped log says is what clients read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantry.consume.pull import SUBSCRIPTION_INLINE, SUSPEND
from gantry.leaves import frames
from gantry.store.disk import RealDisk
from gantry.store.settings import MIB
from gantry.transport.connection import Connection
from gantry.transport.server import RemotingServer
from gantry.wire.command import Request
from testkit.patience import HANG_S
from testkit.pullplay import SMALL, PullPlay, bodies_of, offsets_of


class Consumer:
    """A socket that pulls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._opaque = 0

    def ask(self, offset: int, **fields: Any) -> None:
        """Send a pull and do not wait."""
        self._opaque += 1
        ext: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": SUBSCRIPTION_INLINE | SUSPEND,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 0,
        } | fields
        texts = {name: str(value) for name, value in ext.items()}
        self.writer.write(frames.encode(frames.Command(11, opaque=self._opaque, ext=texts)))

    async def answer(self) -> frames.Command:
        """The next reply."""
        head = await self._reader.readexactly(4)
        frame = head + await self._reader.readexactly(int.from_bytes(head, "big"))
        _, (reply,) = frames.decode(frame, 0, len(frame))
        assert isinstance(reply, frames.Command)
        return reply


class Stage(PullPlay):
    """A store with a server in front of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(store=replace(SMALL, root=str(folder), segment_bytes=MIB), disk=RealDisk())
        self.asked: asyncio.Queue[int] = asyncio.Queue()  # one item per pull that was handled
        self.went = asyncio.Event()
        self.server = RemotingServer(self._on_requests, on_close=self._on_close)
        self._port = 0

    async def open(self) -> None:
        """Listen."""
        self._port = await self.server.start("127.0.0.1", 0)

    async def connect(self) -> Consumer:
        """One more consumer."""
        return Consumer(*await asyncio.open_connection("127.0.0.1", self._port))

    def _on_requests(self, connection: Connection, requests: list[Request]) -> None:
        pulls = [request for request in requests if isinstance(request, frames.Pull)]
        self.pulls.pull_run(connection, pulls)
        for pull in pulls:
            self.asked.put_nowait(pull.opaque)

    def _on_close(self, connection: Connection) -> None:
        self.pulls.held.connection_closed(connection)
        self.went.set()


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """Open a stage in this folder."""
    stage = Stage(folder)
    await stage.open()
    try:
        async with asyncio.timeout(HANG_S):
            yield stage
    finally:
        await stage.server.close()
        stage.close()


async def test_everything_sent_is_pulled_in_order_across_segments(tmp_path: Path) -> None:
    sent = [f"message {number} " + "x" * (number * 37 % 9000) for number in range(600)]
    async with staged(tmp_path) as stage:
        for start in range(0, len(sent), 50):
            stage.send(*sent[start : start + 50])
        consumer = await stage.connect()
        received: list[str] = []
        while len(received) < len(sent):
            consumer.ask(len(received))
            reply = await consumer.answer()
            received += bodies_of(reply.body)
            assert offsets_of(reply) == (len(received), 0, len(sent))
        assert received == sent
        consumer.writer.close()


async def test_everybody_who_waits_at_a_queue_gets_its_next_message(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        consumers = [await stage.connect() for _ in range(3)]
        for consumer in consumers:
            consumer.ask(0)
            consumer.ask(0, queueId=1)
        for _ in range(6):
            await stage.asked.get()
        assert len(stage.pulls.held) == 6
        stage.send("hello")
        for consumer in consumers:
            reply = await consumer.answer()
            assert (reply.opaque, bodies_of(reply.body)) == (1, ["hello"])
        assert len(stage.pulls.held) == 3
        for consumer in consumers:
            consumer.writer.close()


async def test_a_consumer_that_hangs_up_leaves_nothing_held(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        consumer = await stage.connect()
        consumer.ask(0)
        await stage.asked.get()
        assert len(stage.pulls.held) == 1
        consumer.writer.close()
        await stage.went.wait()
        assert len(stage.pulls.held) == 0
        stage.send("nobody hears this")
        assert stage.pulls.counts.woken == 0


async def test_a_consumer_that_asks_for_more_than_it_reads_loses_nothing(tmp_path: Path) -> None:
    sent = [f"{number} " + "y" * 50_000 for number in range(400)]
    async with staged(tmp_path) as stage:
        for start in range(0, len(sent), 10):
            stage.send(*sent[start : start + 10])
        consumer = await stage.connect()
        # Twenty megabytes are asked for before the first answer is read.
        for offset in range(0, len(sent), 4):
            consumer.ask(offset, maxMsgNums=4)
        received: dict[int, str] = {}
        owed, sent_back = len(sent) // 4, 0
        while owed:
            reply = await consumer.answer()
            owed -= 1
            after, _, _ = offsets_of(reply)
            bodies = bodies_of(reply.body)
            received.update(zip(range(after - len(bodies), after), bodies, strict=True))
            if not bodies:
                assert reply.code == 20
                consumer.ask(after, maxMsgNums=4)
                owed += 1
                sent_back += 1
        assert sent_back > 0
        assert [received[number] for number in range(len(sent))] == sent
        consumer.writer.close()
