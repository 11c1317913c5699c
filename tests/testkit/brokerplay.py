"""The real broker in this process, on free ports of 127.0.0.1, and peers that speak raw frames to it.

    async with running_broker(folder) as broker, peer(broker) as client:
        reply = await client.call(send("orders", b"hello"))

A `Peer` is a socket and a decoder: it sends what it is given, also nonsense, and hands out replies in the order in
which they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.settings import loading
from gantry.broker.settings.config import BrokerConfig
from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.store.disk import Disk, RealDisk
from gantry.wire.codes import RequestCode
from testkit.patience import HANG_S

_SMALL = {
    "network.bind": "127.0.0.1",
    "network.port": 0,
    "network.http_port": -1,
    "network.ha_api_port": -1,
    "store.segment_bytes": 16 << 20,
    "store.index_slots": 1000,
    "store.index_entries": 4000,
    "messages.body_bytes_max": 1 << 20,
    "store.disk_used_refuse": 1.0,
    "store.disk_used_clean": 1.0,
    "store.disk_used_max": 1.0,
}


def configuration(folder: Path, **changes: object) -> BrokerConfig:
    """A small broker's configuration; `changes` have `__` where a dotted key has its dot."""
    given = {key.replace("__", "."): value for key, value in changes.items()}
    loaded, _ = loading.load(flags=_SMALL | {"store.root": str(folder / "store")} | given)
    return loaded


@asynccontextmanager
async def running_broker(folder: Path, disk: Disk | None = None, **changes: object) -> AsyncIterator[Broker]:
    """A broker that serves; stopped in order at the end."""
    broker = Broker(configuration(folder, **changes), machine=Machine(disk=disk or RealDisk()))
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


class Peer:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._received = bytearray()
        self._commands: list[Command] = []
        self._opaque = 0

    async def send(self, *commands: Command) -> None:
        """Send commands in one piece, each with an opaque of its own."""
        for command in commands:
            self._opaque += 1
            command.opaque = self._opaque
        await self.send_bytes(b"".join([frames.encode(command) for command in commands]))

    async def send_bytes(self, data: bytes) -> None:
        """Send whatever this is."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self, count: int = 1) -> list[Command]:
        """The next commands that come; ConnectionResetError when the broker hangs up before."""
        async with asyncio.timeout(HANG_S):
            while len(self._commands) < count:
                piece = await self._reader.read(1 << 16)
                if not piece:
                    raise ConnectionResetError("the broker closed the connection")
                self._received += piece
                used, commands = frames.decode(self._received, 0, len(self._received))
                del self._received[:used]
                self._commands += [command for command in commands if isinstance(command, Command)]
        taken, self._commands = self._commands[:count], self._commands[count:]
        return taken

    async def call(self, command: Command) -> Command:
        """Send one command and await its reply; nothing else may be under way."""
        await self.send(command)
        (reply,) = await self.receive()
        assert reply.opaque == command.opaque and reply.is_response
        return reply

    async def ping(self) -> None:
        """Return when everything sent before has been handled: requests of one connection are taken in order."""
        question = Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "nowhere", "queueId": "0"})
        await self.call(question)

    async def gone(self) -> bool:
        """Wait until the broker hangs up."""
        async with asyncio.timeout(HANG_S):
            try:
                while await self._reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return True

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def peer(broker: Broker, vip: bool = False) -> AsyncIterator[Peer]:
    """A connection to the broker."""
    assert broker.addresses is not None
    port = broker.addresses.vip_port if vip else broker.addresses.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Peer(reader, writer)
    try:
        yield client
    finally:
        await client.close()


def send(
    topic: str, body: bytes = b"body", queue_id: int = 0, pairs: dict[str, str] | None = None, **ext: str
) -> Command:
    """A SEND_MESSAGE_V2 (310); further header fields by their letters."""
    fields = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
    }
    fields |= {"h": "0", "i": properties.pack(pairs or {}).decode(), "j": "0", "k": "false", "m": "false"}
    return Command(310, ext=fields | ext, body=body)


def send_v1(topic: str, body: bytes = b"body", queue_id: int = 0) -> Command:
    """A SEND_MESSAGE (10) with long names."""
    names = {
        "producerGroup": "producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
    }
    return Command(10, ext=names, body=body)


def batch(topic: str, messages: list[tuple[bytes, dict[str, str]]], code: int = 320, **ext: str) -> Command:
    """A SEND_BATCH_MESSAGE of (body, properties)."""
    body = b"".join([_entry(content, properties.pack(pairs)) for content, pairs in messages])
    request = send(topic, body, **{"m": "true"} | ext)
    request.code = code
    return request


def pull(topic: str, offset: int = 0, queue_id: int = 0, **ext: str) -> Command:
    """A PULL_MESSAGE that does not wait; further header fields by their names."""
    fields = {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return Command(11, ext=fields | ext)


def oneway(command: Command) -> Command:
    """The same request, but nobody waits for an answer."""
    command.flag |= frames.FLAG_ONEWAY
    return command


def stored(body: bytes) -> list[records.Record]:
    """The records in the body of a pull's reply."""
    found: list[records.Record] = []
    at = 0
    while at < len(body):
        record = records.view(body, at, len(body), True)
        found.append(record)
        at += record.size
    return found


def bodies(reply: Command) -> list[bytes]:
    """The message bodies in a pull's reply."""
    return [record.body for record in stored(reply.body)]


def _entry(body: bytes, packed: bytes) -> bytes:
    size = 22 + len(body) + len(packed)
    head = size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big")
    return head + body + len(packed).to_bytes(2, "big") + packed
