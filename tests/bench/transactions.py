"""Half and commit: pairs per second and what they cost the broker, beside two plain sends and Apache's broker.

The C load generator plays the producers, each with one transaction under way or with eight: half, reply, END, reply;
and plain producers of the same number, window, size and topic in turn with them, so that a pair is compared with two
sends of the same seconds of the same machine.  The figure to trust is the CPU of all threads of the broker's process
per pair.

`visible` is the time from a half leaving to its message arriving at a consumer that waits; both are in this process.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import TYPE_CHECKING

import pages
from apache import apache, is_here
from frames import call, frame, receive
from openhalves import open_halves
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPIC, _GROUP = "TxBench", "bench-tx"
_BODY = b"x" * 1024
_PRODUCERS = ((8, 1), (64, 1), (64, 8))  # how many, and transactions under way each
_WARMUP_S = 0.5
_WARMUP_JAVA_S = 15.0  # of each of two loads: its compiler has to see the code first
_VISIBLE_COUNT = 300
_VISIBLE_WARMUP = 50
_LOG_OFFSET = re.compile(rb'"msgId":"[0-9A-F]*([0-9A-F]{16})"')
_QUEUE_OFFSET = re.compile(rb'"queueOffset":"?(\d+)')


def _half(nth: int) -> bytes:
    pairs = f"UNIQ_KEY\x017F0000010000{os.getpid() & 0xFFFF:04X}{nth & 0xFFFFFFFF:016X}\x02"
    pairs += f"TRAN_MSG\x01true\x02PGROUP\x01{_GROUP}\x02"
    ext = {"a": _GROUP, "b": _TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "4", "h": "0"}
    ext |= {"g": str(time.time_ns() // 1_000_000), "i": pairs, "j": "0", "k": "false", "m": "false"}
    return frame(310, nth, ext, _BODY)


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
    return frame(37, nth, ext)


def _visible_ms(port: int) -> float:
    """Median from half to arrival, one after the other."""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as producer,
        socket.create_connection(("127.0.0.1", port), 20) as consumer,
    ):
        for connection in (producer, consumer):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ext = {"topic": _TOPIC, "queueId": "0"}
        reply = call(consumer, frame(30, 1, ext))
        found = re.search(rb'"offset":"?(\d+)', reply)
        offset = int(found[1]) if found else 0
        pull = {"consumerGroup": "gbench", "maxMsgNums": "1", "sysFlag": "6", "commitOffset": "0"}
        pull |= {"suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0", **ext}
        took = []
        for nth in range(_VISIBLE_WARMUP + _VISIBLE_COUNT):
            consumer.sendall(frame(11, nth, pull | {"queueOffset": str(offset)}))
            time.sleep(0.005)  # the pull is held by then
            begun = time.monotonic()
            producer.sendall(_commit(nth, call(producer, _half(nth))))
            reply = receive(consumer)
            took.append(time.monotonic() - begun)
            moved = re.search(rb'"nextBeginOffset":"?(\d+)', reply)
            offset = int(moved[1]) if moved else offset + 1
            receive(producer)
        took = sorted(took[_VISIBLE_WARMUP:])
        return round(1000 * took[len(took) // 2], 2)


def _make_topic(port: int) -> None:
    ext = {"topic": _TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        call(connection, frame(17, 1, ext))


def _pairs(name: str, bench: Bench, server: Server, producers: int, window: int, target: str) -> Row:
    """Rounds of plain sends and pairs in turn; the row is the median round by their ratio."""
    load = {"connections": producers, "window": window, "queues": 4, "size": len(_BODY), "topic": _TOPIC}
    rounds = []
    for _ in range(bench.rounds):
        results = []
        for mode in ("send", "transact"):
            pages.write_us(bench.folder, 256, pages.TOUCH_BYTES)  # as for sends: memory that is there
            results.append(bench.load(server, mode=mode, warmup=_WARMUP_S, **load))
        plain, pair = results
        factor = pair["cpu_us_per_message"] / (2 * plain["cpu_us_per_message"])
        rounds.append((factor, plain, pair))
    factor, plain, pair = sorted(rounds, key=lambda one: one[0])[len(rounds) // 2]
    beside = f"{plain['cpu_us_per_message']:.1f} us each, {plain['rate']:.0f}/s"
    note = f"{factor:.2f} x the CPU of two plain sends ({beside})"
    keep = ("rate", "p50_us", "p99_us", "p999_us", "cpu_us_per_message", "errors")
    figure = f"{name}: half + commit, {producers} producers" + (f" x {window}" if window > 1 else "")
    return {"figure": figure, **{key: pair[key] for key in keep}, "target": target, "note": note}


def _measured(name: str, bench: Bench, server: Server, targets: tuple[str, str], warmup_s: float) -> list[Row]:
    _make_topic(server.port)
    for mode in ("send", "transact"):
        bench.load(server, mode=mode, connections=64, window=1, queues=4, topic=_TOPIC, seconds=warmup_s)
    rows = [_pairs(name, bench, server, producers, window, targets[0]) for producers, window in _PRODUCERS]
    visible = _visible_ms(server.port)
    rows.append({"figure": f"{name}: half to visible, p50", "ms": visible, "target": targets[1]})
    return rows


def transactions(bench: Bench) -> list[Row]:
    """Pairs of half and commit, under ASYNC_FLUSH; Apache's broker in the same session; and many open halves."""
    with gantry(bench.folder / "transactions") as server:
        rows = _measured("GantryMQ", bench, server, ("<= 2.5 x two plain sends", "< 3 ms"), _WARMUP_S)
    if is_here():
        with apache(bench.folder / "apache") as other:
            rows += _measured("Apache 5.x", bench, other, ("yardstick", "yardstick"), _WARMUP_JAVA_S)
    return rows + open_halves(bench)
