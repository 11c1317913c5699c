"""What consumers cost when they wait, and what one that is far behind costs those who send.

Waiting: 1 000 groups with eight pulls held each, on a connection a group; 100 topics, so that ten groups wait for
each queue.  They ask again every 15 s, as Java's push consumers do, and send heartbeats every 30 s: that is the
broker's CPU while nothing is sent.  Then messages go out one after the other, and each wakes ten pulls; the time
from the send to each answer is a wake.  Sender and consumers are one Python process, whose own turns are part of it.

Far behind: a store is filled, its broker stopped, the pages of its log dropped from the page cache, and a new broker
started, which holds only the last 64 MiB for warm.  Then producers run beside a consumer that reads from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import threading
import time
from array import array
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from frames import frame, receive
from peers import HEARTBEAT, SEND, UPDATE_TOPIC, Held, Peer, connect, heartbeat, send_fields, topic_fields
from servers import Server, gantry
from soak import sample

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from scenarios import Bench, Row

_GROUPS, _TOPICS, _QUEUES = 1_000, 100, 8
_SUSPEND_MS = 15_000
_BEATS_S = 30.0
_SETTLE_S = 5.0
_IDLE_S = 30.0  # two rounds of pulls, one of heartbeats
_WAKES = 500
_PAUSE_S = 0.02
_SENT_AT = Struct(">d")
_BACKLOG = 700_000  # messages of 1 KiB: some 840 MiB of log
_WARM = {"GANTRY_STORE_WARM_BYTES": "64MiB", "GANTRY_STORE_SEGMENT_BYTES": "128MiB"}


class _Waiting:
    """The groups, and what came to them."""

    def __init__(self, server: Server) -> None:
        self.came_s: array[float] = array("d")
        self._server = server
        self._peers: list[Peer] = []
        self._beats: list[bytes] = []

    async def measure(self) -> tuple[float, float]:
        """(CPU of the idle broker in percent, how many wakes are missing)."""
        await self._begin()
        beating = asyncio.create_task(self._beat())
        await asyncio.sleep(_SETTLE_S)
        before = await asyncio.to_thread(sample, self._server.pid)
        await asyncio.sleep(_IDLE_S)
        after = await asyncio.to_thread(sample, self._server.pid)
        await self._wake()
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        for peer in self._peers:
            peer.close()
        idle = 100 * (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)
        return idle, _WAKES * _GROUPS / _TOPICS - len(self.came_s)

    async def _begin(self) -> None:
        for number in range(_GROUPS):
            group, topic = f"waiting-{number}", f"waited-{number % _TOPICS}"
            peer = await connect(self._server.port, _stop)
            if number < _TOPICS:
                await peer.call(UPDATE_TOPIC, topic_fields(topic, _QUEUES))
            self._peers.append(peer)
            self._beats.append(heartbeat(f"127.0.0.1@{number}", group, [topic]))
            self._beat_one(number)
            queues = dict.fromkeys(((topic, queue_id) for queue_id in range(_QUEUES)), 0)
            Held(group, queues, _SUSPEND_MS, self._came, _stop).begin(peer)
            # Consumers start when they do: their rounds shall not fall together.
            await asyncio.sleep(_SUSPEND_MS / 1000 / _GROUPS)

    def _beat_one(self, number: int) -> None:
        self._peers[number].ask(HEARTBEAT, {}, self._beats[number], lambda reply: None)

    async def _beat(self) -> None:
        while True:
            for number in range(len(self._peers)):
                self._beat_one(number)
                await asyncio.sleep(_BEATS_S / _GROUPS)

    def _came(self, record: Record) -> None:
        self.came_s.append(time.monotonic() - _SENT_AT.unpack_from(record.body)[0])

    async def _wake(self) -> None:
        sender, chosen = await connect(self._server.port, _stop), random.Random(1)
        self._peers.append(sender)
        for _ in range(_WAKES):
            fields = send_fields(f"waited-{chosen.randrange(_TOPICS)}", chosen.randrange(_QUEUES))
            reply = await sender.call(SEND, fields, _SENT_AT.pack(time.monotonic()))
            if reply.code != 0:
                _stop(f"a send got {reply.code} {reply.remark}")
            await asyncio.sleep(_PAUSE_S)
        await asyncio.sleep(1.0)


def _stop(error: str) -> None:
    raise SystemExit(error)


def held_pulls(bench: Bench) -> list[Row]:
    """1 000 groups x 8 held pulls: idle CPU and wakes."""
    with gantry(bench.folder / "held") as server:
        waiting = _Waiting(server)
        idle, missing = asyncio.run(waiting.measure())
    ordered = sorted(waiting.came_s)
    p50, p99, p999 = (round(1e6 * ordered[int(share * (len(ordered) - 1))], 1) for share in (0.5, 0.99, 0.999))
    name = f"{_GROUPS} groups x {_QUEUES} held pulls"
    return [
        {"figure": f"{name}, idle", "target": "< 2 % CPU", "note": f"{idle:.2f} % CPU"},
        {
            "figure": f"{name}, wakes",
            "p50_us": p50,
            "p99_us": p99,
            "p999_us": p999,
            "errors": round(missing),
            "target": "p99 < 5 ms",
        },
    ]


def drop_pages(folder: Path) -> int:
    """Write a store's log to the disk and forget its pages, which works while nobody has them mapped; its bytes."""
    total = 0
    for path in sorted((folder / "commitlog").iterdir()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return total


class FarBehind:
    """One consumer that reads the backlog in a thread, over and over, until it is told to end."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self.longest_s = 0.0
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> FarBehind:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _read(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 60) as peer:
            offset = 0
            while not self._is_over.is_set():
                ext = {
                    "consumerGroup": "far-behind", "topic": "Bench", "queueId": "0", "queueOffset": str(offset),
                    "maxMsgNums": "1024", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                    "subscription": "*", "subVersion": "0", "maxMsgBytes": str(1 << 20),
                }  # fmt: skip
                begun = time.monotonic()
                peer.sendall(frame(11, 1, ext))
                reply = receive(peer)
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                self.bytes += len(reply)
                _, _, behind = reply.partition(b'"nextBeginOffset":"')
                offset = int(behind[: behind.index(b'"')]) if reply[12:400].find(b'"code":0') >= 0 else 0


def cold_backlog(bench: Bench) -> list[Row]:
    """Producers alone, and beside a consumer that reads what is only on the disk."""
    folder = bench.folder / "cold"
    with gantry(folder, env=_WARM) as server:
        bench.load(server, mode="send", connections=4, window=256, queues=1, count=_BACKLOG, warmup=0, seconds=120)
    size = drop_pages(folder)
    load = {"mode": "send", "connections": 8, "window": 1, "queues": 1, "seconds": max(bench.seconds, 5.0)}
    with gantry(folder, env=_WARM) as server:
        bench.load(server, **load | {"seconds": 1.0})
        alone = bench.load(server, **load)
        with FarBehind(server.port) as consumer:
            begun = time.monotonic()
            beside = bench.load(server, **load)
            took = time.monotonic() - begun
            rate = consumer.bytes / took / 1e6
    keep = ("rate", "p50_us", "p99_us", "p999_us", "cpu_us_per_message", "errors")
    note = f"the consumer read {rate:.0f} MB/s of {size >> 20} MiB, its longest pull {1000 * consumer.longest_s:.0f} ms"
    rows: list[Row] = [
        {"figure": "8 producers alone", **{key: alone[key] for key in keep}, "target": "yardstick"},
        {"figure": "the same beside a cold reader", **{key: beside[key] for key in keep}, "target": "p99 as alone"},
    ]
    rows[1]["note"] = note
    return rows


def consumption(bench: Bench) -> list[Row]:
    """Waiting consumers, and one that is far behind."""
    return held_pulls(bench) + cold_backlog(bench)
