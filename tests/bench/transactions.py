"""Half and commit: pairs per second and what they cost the broker, beside two plain sends and Apache's broker.

One selector loop plays all producers: each has a connection and one transaction under way, half, reply, END, reply.
The same loop plays plain senders, so that both pay the same for it, and the CPU of the broker's process per pair is the
figure to trust.  `visible` is the time from a half leaving to its message arriving at a consumer that waits.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TESTS = Path(__file__).resolve().parent.parent
_TOPIC, _GROUP = "TxBench", "txbench"
_BODY = b"x" * 1024
_TICKS = os.sysconf("SC_CLK_TCK")
_WARMUP_S = 1.0
_VISIBLE_COUNT = 300
_LOG_OFFSET = re.compile(rb'"msgId":"[0-9A-F]*([0-9A-F]{16})"')
_QUEUE_OFFSET = re.compile(rb'"queueOffset":"?(\d+)')
_CODE = re.compile(rb'"code":(\d+)')


def _frame(code: int, opaque: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": 0, "extFields": ext}
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _send(nth: int, *, half: bool) -> bytes:
    key = f"7F0000010000{os.getpid() & 0xFFFF:04X}{nth & 0xFFFFFFFF:016X}"
    pairs = f"UNIQ_KEY\x01{key}\x02"
    if half:
        pairs += f"TRAN_MSG\x01true\x02PGROUP\x01{_GROUP}\x02"
    ext = {
        "a": _GROUP if half else "plain",
        "b": _TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(nth & 3),
        "f": "4" if half else "0",
        "h": "0",
    }
    ext |= {"g": str(time.time_ns() // 1_000_000), "i": pairs, "j": "0", "k": "false", "m": "false"}
    return _frame(310, nth & 0x7FFFFFFF, ext, _BODY)


def _commit(nth: int, reply: bytes) -> bytes:
    log_offset, queue_offset = _LOG_OFFSET.search(reply), _QUEUE_OFFSET.search(reply)
    if log_offset is None or queue_offset is None:
        raise SystemExit(f"a half was answered with {reply!r}")
    ext = {
        "topic": _TOPIC,
        "producerGroup": _GROUP,
        "tranStateTableOffset": queue_offset[1].decode(),
        "commitLogOffset": str(int(log_offset[1], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "0",
    }
    return _frame(37, nth & 0x7FFFFFFF, ext)


@dataclass(slots=True)
class _Peer:
    """One producer."""

    connection: socket.socket
    begun: float = 0.0
    step: int = 0  # 0: the half or send is under way, 1: the end
    received: bytearray = field(default_factory=bytearray)

    def reply(self) -> bytes | None:
        """The next whole frame, if it is there."""
        data = self.received
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            return None
        end = 4 + int.from_bytes(data[:4], "big")
        frame = bytes(data[:end])
        del data[:end]
        return frame


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class _Load:
    """So many producers, each with one thing under way."""

    def __init__(self, port: int, count: int, *, transactional: bool) -> None:
        self._transactional = transactional
        self._nth = 0
        self._took: list[float] = []
        self._selector = selectors.DefaultSelector()
        self._peers = [_Peer(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(count)]
        for peer in self._peers:
            peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(peer.connection, selectors.EVENT_READ, peer)

    def run(self, server: Server, seconds: float) -> dict[str, float]:
        """Rates, latencies and the broker's CPU for each pair (or send) after a warm-up."""
        for peer in self._peers:
            self._begin(peer)
        self._until(time.monotonic() + _WARMUP_S)
        self._took.clear()
        cpu_s, begun = _cpu_s(server.pid), time.monotonic()
        self._until(begun + seconds)
        took_s, cpu_s = time.monotonic() - begun, _cpu_s(server.pid) - cpu_s
        for peer in self._peers:
            peer.connection.close()
        self._took.sort()
        count = len(self._took)
        return {
            "rate": round(count / took_s),
            "p50_us": round(1e6 * self._took[count // 2]),
            "p99_us": round(1e6 * self._took[count * 99 // 100]),
            "cpu_us": round(1e6 * cpu_s / count, 1),
        }

    def _until(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            for key, _ in self._selector.select(0.1):
                peer: _Peer = key.data
                peer.received += peer.connection.recv(65536)
                reply = peer.reply()
                if reply is not None:
                    self._next(peer, reply)

    def _begin(self, peer: _Peer) -> None:
        self._nth += 1
        peer.step, peer.begun = 0, time.monotonic()
        peer.connection.sendall(_send(self._nth, half=self._transactional))

    def _next(self, peer: _Peer, reply: bytes) -> None:
        code = _CODE.search(reply)
        if code is None or code[1] != b"0":
            raise SystemExit(f"refused: {reply[:300]!r}")
        if self._transactional and peer.step == 0:
            peer.step = 1
            peer.connection.sendall(_commit(self._nth, reply))
            return
        self._took.append(time.monotonic() - peer.begun)
        self._begin(peer)


def _call(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    peer = _Peer(connection)
    while True:
        reply = peer.reply()
        if reply is not None:
            return reply
        peer.received += connection.recv(65536)


def _visible_ms(port: int, count: int) -> float:
    """Median from half to arrival, one after the other."""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as producer,
        socket.create_connection(("127.0.0.1", port), 20) as consumer,
    ):
        for connection in (producer, consumer):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ext = {"topic": _TOPIC, "queueId": "0"}
        reply = _call(consumer, _frame(30, 1, ext))
        found = re.search(rb'"offset":"?(\d+)', reply)
        offset = int(found[1]) if found else 0
        pull = {"consumerGroup": "gbench", "maxMsgNums": "1", "sysFlag": "6", "commitOffset": "0"}
        pull |= {"suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0", **ext}
        took = []
        for nth in range(count):
            consumer.sendall(_frame(11, nth, pull | {"queueOffset": str(offset)}))
            time.sleep(0.005)  # the pull is held by then
            begun = time.monotonic()
            half = _call(producer, _send(4 * nth, half=True))
            producer.sendall(_commit(nth, half))
            peer = _Peer(consumer)
            while (reply := peer.reply() or b"") == b"":
                peer.received += consumer.recv(65536)
            took.append(time.monotonic() - begun)
            moved = re.search(rb'"nextBeginOffset":"?(\d+)', reply)
            offset = int(moved[1]) if moved else offset + 1
            ended = _Peer(producer)
            while ended.reply() is None:
                ended.received += producer.recv(65536)
        took.sort()
        return round(1000 * took[count // 2], 2)


@contextmanager
def _apache(folder: Path) -> Iterator[Server | None]:
    """Apache's broker 5.x as the interop level starts it, or None without Java."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        yield None
        return
    sys.path.insert(0, str(_TESTS))
    from interop import servers as others

    begin = time.monotonic()
    server = others.Apache("5.x", folder / "home", folder / "data", {"transactionCheckInterval": 30_000})
    server.start()
    try:
        port = int(server.broker.rpartition(":")[2])
        assert server.broker_pid is not None
        yield Server(server.broker_pid, port, time.monotonic() - begin)
    finally:
        server.close()


def _make_topic(port: int) -> None:
    ext = {"topic": _TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        _call(connection, _frame(17, 1, ext))


def _measured(name: str, bench: Bench, server: Server, targets: tuple[str, str]) -> list[Row]:
    _make_topic(server.port)
    rows: list[Row] = []
    for producers in (8, 64):
        plain = _Load(server.port, producers, transactional=False).run(server, bench.seconds)
        pairs = _Load(server.port, producers, transactional=True).run(server, bench.seconds)
        factor = pairs["cpu_us"] / (2 * plain["cpu_us"]) if plain["cpu_us"] else 0.0
        note = f"{factor:.2f} x the CPU of two plain sends ({plain['cpu_us']} us each, {plain['rate']:.0f}/s)"
        rows.append(
            {
                "figure": f"{name}: half + commit, {producers} producers",
                "rate": pairs["rate"],
                "p50_us": pairs["p50_us"],
                "p99_us": pairs["p99_us"],
                "cpu_us_per_message": pairs["cpu_us"],
                "target": targets[0],
                "note": note,
            }
        )
    visible = _visible_ms(server.port, _VISIBLE_COUNT)
    rows.append({"figure": f"{name}: half to visible, p50", "ms": visible, "target": targets[1]})
    return rows


def transactions(bench: Bench) -> list[Row]:
    """Pairs of half and commit, under ASYNC_FLUSH; Apache's broker in the same session."""
    with gantry(bench.folder / "transactions") as server:
        rows = _measured("GantryMQ", bench, server, ("<= 2.5 x two plain sends", "< 3 ms"))
    with _apache(bench.folder / "apache") as other:
        if other is not None:
            rows += _measured("Apache 5.x", bench, other, ("yardstick", "yardstick"))
    return rows
