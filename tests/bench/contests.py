"""What the comparison with Apache's broker asks: the loads of each contest, the same for both brokers.

A contest has both brokers on fresh stores of one disk, warmed up with its own loads.  Each of its points is a run of
the load generator, which checks every reply and every byte that is pulled.  Where a point says so (`is_stored`), the
ends of the topic's queues have to move by exactly the messages that were acknowledged.
"""

from __future__ import annotations

import re
import socket
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frames import call, frame, receive
from servers import Server

if TYPE_CHECKING:
    from scenarios import Bench

Options = dict[str, object]
TOPIC, QUEUES = "Bench", 8
# The file sizes of `gantry broker`, which are Apache's defaults too; `gantry standalone` has smaller ones.
OURS = {
    "GANTRY_STORE_SEGMENT_BYTES": "1GiB",
    "GANTRY_STORE_INDEX_SLOTS": "5000000",
    "GANTRY_STORE_INDEX_ENTRIES": "20000000",
}
_NEAR, _FAR = "Near", "Far"
_NEAR_COUNT = 200_000
_FAR_COUNT = 2_200_000  # 2.6 GiB of log
_FAR_UNTIL = 100_000  # of 275 000 in each queue: the first 1 GiB, which ends 1.5 GiB behind the end
POPPED = "Popped"
_POPPED_COUNT = 640_000  # less than 1 GiB of log
_INVISIBLE_MS = 6_000
_POP_SETTLE_S = 16.0  # Apache's reviver looks ten seconds further than what it handles
_BACKS = 4_096
_LIVE_SHARES = (20, 50, 80)
_SETTLE_S = 20.0
_OFFSET = re.compile(rb'"offset":"?(\d+)')
_CODE = re.compile(rb'"code":(\d+)')


@dataclass(frozen=True)
class Point:
    """One row: its name and what the load generator is told."""

    name: str
    options: Options
    is_stored: bool = True
    settle_s: float = 0.0  # the server's CPU is counted until so long after the load, see `pops.until_settled`


@dataclass(frozen=True)
class Contest:
    """What both brokers are prepared with, and the points that are measured in turns."""

    points: Callable[[Bench, list[Server]], list[Point]]
    flush: str = "ASYNC_FLUSH"
    prepare: Callable[[Bench, Server], None] = field(default=lambda bench, server: None)
    is_replicated: bool = False


def _call(port: int, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        reply = call(connection, frame(code, 1, ext, body))
    found = _CODE.search(reply)
    if found is None or found[1] != b"0":
        raise SystemExit(f"request {code} with {ext} was answered with {reply[:400]!r}")
    return reply


def make_topic(port: int, topic: str, queues: int = QUEUES) -> None:
    """By UPDATE_AND_CREATE_TOPIC, so that no broker makes it during a measurement."""
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    _call(port, 17, ext | {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})


def stored(port: int, topic: str, queues: int = QUEUES) -> int:
    """The sum of the ends of a topic's queues."""
    total = 0
    for queue in range(queues):
        found = _OFFSET.search(_call(port, 30, {"topic": topic, "queueId": str(queue)}))
        assert found is not None
        total += int(found[1])
    return total


def wait_stored(port: int, topic: str, expected: int) -> None:
    """Until the queues end where they should; brokers place messages into queues behind the acknowledgement."""
    deadline = time.monotonic() + _SETTLE_S
    while (found := stored(port, topic)) != expected:
        if time.monotonic() > deadline or found > expected:
            raise SystemExit(f"{topic} has {found} messages where {expected} were acknowledged")
        time.sleep(0.05)


def _fixed(*points: Point) -> Callable[[Bench, list[Server]], list[Point]]:
    return lambda bench, servers: list(points)


def _sends(connections: int, window: int, **more: object) -> Options:
    return {"mode": "send", "connections": connections, "window": window, **more}


def _send(connections: int, window: int, **more: object) -> Point:
    return Point(f"send 1 KiB {connections} x {window}", _sends(connections, window, **more))


def fill(bench: Bench, server: Server, topic: str, count: int) -> None:
    """So many messages of 1 KiB at least, by batches."""
    make_topic(server.port, topic)
    bench.load(server, **_sends(4, 4, per=32, code=320, topic=topic, count=count, warmup=0, seconds=300))


def _fill_for_pulls(bench: Bench, server: Server) -> None:
    fill(bench, server, _FAR, _FAR_COUNT)
    fill(bench, server, _NEAR, _NEAR_COUNT)


def _pulls() -> list[Point]:
    load = {"mode": "pull", "connections": QUEUES, "window": 1, "batch": 32}
    return [
        Point("pull 32 x 1 KiB, 8 connections, near the end", {**load, "topic": _NEAR}, is_stored=False),
        Point("pull 32 x 1 KiB, > 1 GiB behind the end", {**load, "topic": _FAR, "until": _FAR_UNTIL}, is_stored=False),
    ]


def pull_options(topic: str) -> Options:
    """Pulls of 32, one under way for each queue."""
    return {"mode": "pull", "connections": QUEUES, "window": 1, "batch": 32, "topic": topic}


def pop_options(topic: str) -> Options:
    """Pops of 32 of the same queues, each acknowledged by one request; a new group when a queue is read to its end."""
    return {**pull_options(topic), "mode": "pop", "invisible": _INVISIBLE_MS, "until": 1000, "warmup": 0}


def fill_for_pops(bench: Bench, server: Server) -> None:
    """Messages to pop and to pull."""
    fill(bench, server, POPPED, _POPPED_COUNT)


def _pops() -> list[Point]:
    pop = "pop 32 x 1 KiB and one BATCH_ACK, 8 connections, until settled"
    return [
        Point("pull 32 x 1 KiB, 8 connections, beside pops", pull_options(POPPED), is_stored=False),
        Point(pop, pop_options(POPPED), is_stored=False, settle_s=_POP_SETTLE_S),
    ]


def _forms(bench: Bench, servers: list[Server]) -> list[Point]:
    """A body that was 16 KiB of numbers before its producer compressed it."""
    path = bench.folder / "compressed"
    text = " ".join(str(number * number * 7919 % 100_003) for number in range(4200))
    path.write_bytes(zlib.compress(text.encode()[: 16 << 10], 5))
    return [
        Point("send 1 KiB 64 x 8, binary headers", _sends(64, 8, binary=1)),
        Point("send 16 KiB compressed 64 x 8", _sends(64, 8, sysflag=1, body=path)),
    ]


def _transactions() -> list[Point]:
    shapes = ((8, 1), (64, 1), (64, 8))
    return [Point(f"half + commit {a} x {b}", {**_sends(a, b), "mode": "transact"}) for a, b in shapes]


def _send_backs(bench: Bench, server: Server) -> None:
    """Messages to give back, a file of their log offsets in the broker's folder of tools, and the group."""
    group = b'{"groupName":"bench-back","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
    _call(server.port, 200, {}, group)
    bench.load(server, **_sends(8, 8, count=_BACKS * 2, warmup=0, seconds=60))
    offsets: list[int] = []
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        for at in range(0, _BACKS // QUEUES, 32):
            for queue in range(QUEUES):
                offsets += _log_offsets(connection, queue, at)
    (bench.tools / f"offsets-{server.port}").write_text("".join(f"{offset}\n" for offset in offsets))


def _log_offsets(connection: socket.socket, queue: int, at: int) -> list[int]:
    ext = {"consumerGroup": "bench-back", "topic": TOPIC, "queueId": str(queue), "queueOffset": str(at)}
    ext |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    connection.sendall(frame(11, 1, ext | {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}))
    reply = receive(connection)
    record = 8 + (int.from_bytes(reply[4:8], "big") & 0xFFFFFF)
    offsets = []
    while record < len(reply):
        offsets.append(int.from_bytes(reply[record + 28 : record + 36], "big"))
        record += int.from_bytes(reply[record : record + 4], "big")
    return offsets


def options_for(point: Point, bench: Bench, server: Server) -> Options:
    """What the load generator is told for one server; only send-backs differ, by where the messages stand."""
    is_back = point.options["mode"] == "back"
    return {**point.options, **({"offsets": bench.tools / f"offsets-{server.port}"} if is_back else {})}


def _live(bench: Bench, servers: list[Server]) -> list[Point]:
    """The same rates for both: shares of what the slower of the two takes."""
    load: Options = {"mode": "live", "connections": QUEUES + 16, "window": 8}
    taken = min(bench.load(server, **load)["rate"] for server in servers)
    points = [Point("live consumer, saturated", load)]
    for share in _LIVE_SHARES:
        name = f"live consumer, {share} % of the lower saturation"
        points.append(Point(name, {**load, "rate": max(1, round(taken * share / 100))}))
    return points


CONTESTS = {
    "sends": Contest(_fixed(_send(64, 1), _send(64, 8), _send(1, 256))),
    "fan-in": Contest(_fixed(_send(8, 64), _send(512, 1), _send(1, 1))),
    "sizes": Contest(
        _fixed(
            Point("send 100 B 64 x 8", _sends(64, 8, size=100)),
            Point("send 16 KiB 64 x 8", _sends(64, 8, size=16 << 10)),
        )
    ),
    "batches": Contest(
        _fixed(
            Point("batch of 32 x 1 KiB 8 x 4, request 320", _sends(8, 4, per=32, code=320)),
            Point("batch of 32 x 1 KiB 8 x 4, request 310", _sends(8, 4, per=32, code=310)),
        )
    ),
    "forms": Contest(_forms),
    "sync": Contest(
        _fixed(
            Point("SYNC_FLUSH send 1 KiB 64 x 8", _sends(64, 8)), Point("SYNC_FLUSH send 1 KiB 1 x 1", _sends(1, 1))
        ),
        flush="SYNC_FLUSH",
    ),
    "pulls": Contest(_fixed(*_pulls()), prepare=_fill_for_pulls),
    "pops": Contest(_fixed(*_pops()), prepare=fill_for_pops),
    "transactions": Contest(_fixed(*_transactions())),
    "delays": Contest(
        _fixed(Point("delayed send 1 KiB 64 x 8", _sends(64, 8, properties="DELAY\x0118\x02"), is_stored=False))
    ),
    "send-backs": Contest(
        _fixed(Point("send-back 8 x 8", {"mode": "back", "connections": 8, "window": 8}, is_stored=False)),
        prepare=_send_backs,
    ),
    "replication": Contest(_fixed(Point("SYNC_MASTER, one slave, 64 x 8", _sends(64, 8))), is_replicated=True),
    "live": Contest(_live),
}
