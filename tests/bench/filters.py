"""Filters that keep one message in a hundred: how many messages a second the broker looks at for one consumer.

One connection pulls a queue of 1 KiB messages from end to end, over and over, each pull waiting for the reply to the
one before.  `rate` is what was examined by wall time, pulls and network included; `per_core` is by CPU of all threads
of the broker's process, the figure to trust.  Tags are looked at in queue entries; SQL looks into the records, each
with eight properties.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import TYPE_CHECKING

from frames import frame, receive
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPIC = "FilterBench"
_MESSAGES, _BATCH = 200_000, 500
_BODY = b"x" * 1024
_FILTERS = (
    ("tag filter that keeps 1 %", "TAG", "keep", ">= 1M entries/s"),
    ("SQL filter that keeps 1 %, one number", "SQL92", "n < 1", ">= 150k/s/core"),
    ("SQL filter that keeps 1 %, six conditions", "SQL92",
     "region IN ('eu', 'us') AND (kind = 'order' OR kind IS NULL) AND price BETWEEN 1 AND 500 AND n < 1",
     ">= 150k/s/core"),
)  # fmt: skip
_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')
_MAX = re.compile(rb'"maxOffset":"(\d+)"')


def _entry(number: int) -> bytes:
    hundredth = number % 100
    pairs = {
        "UNIQ_KEY": f"7F000001{number:024X}", "WAIT": "true", "KEYS": f"order-{number}", "n": str(hundredth),
        "TAGS": "other" if hundredth else "keep", "region": ("eu", "us", "asia")[number % 3 if hundredth else 0],
        "kind": "order", "price": "250",
    }  # fmt: skip
    packed = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
    size = 22 + len(_BODY) + len(packed)
    head = size.to_bytes(4, "big") + bytes(12) + len(_BODY).to_bytes(4, "big")
    return head + _BODY + len(packed).to_bytes(2, "big") + packed


def _fill(connection: socket.socket) -> None:
    ext = {"a": "bench", "b": _TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    for first in range(0, _MESSAGES, _BATCH):
        body = b"".join(map(_entry, range(first, first + _BATCH)))
        connection.sendall(frame(320, first, ext | {"j": "0", "k": "false", "m": "true"}, body))
        reply = receive(connection)
        if b'"code":0' not in reply:
            raise SystemExit(f"a batch was answered with {reply[:300]!r}")


def _pull(connection: socket.socket, offset: int, kind: str, expression: str) -> tuple[int, int]:
    """One pull: (where to go on, end of the queue)."""
    ext = {
        "consumerGroup": "bench", "topic": _TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": expression, "subVersion": "0",
        "expressionType": kind,
    }  # fmt: skip
    connection.sendall(frame(11, offset, ext, b""))
    reply = receive(connection)
    following, end = _NEXT.search(reply), _MAX.search(reply)
    if following is None or end is None:
        raise SystemExit(f"a pull was answered with {reply[:300]!r}")
    return int(following[1]), int(end[1])


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _walk(server: Server, connection: socket.socket, seconds: float, kind: str, expression: str) -> tuple[float, float]:
    """(examined a second, examined a second of CPU)."""
    examined = offset = 0
    begun, cpu = time.monotonic(), _cpu_s(server.pid)
    while time.monotonic() - begun < seconds:
        following, end = _pull(connection, offset, kind, expression)
        examined += following - offset
        offset = 0 if following >= end else following
    return examined / (time.monotonic() - begun), examined / (_cpu_s(server.pid) - cpu)


def filters(bench: Bench) -> list[Row]:
    """What tag and SQL filters look at."""
    rows: list[Row] = []
    with gantry(bench.folder / "filters") as server, socket.create_connection(("127.0.0.1", server.port), 30) as peer:
        _fill(peer)
        for figure, kind, expression, target in _FILTERS:
            _walk(server, peer, 0.3, kind, expression)
            runs = sorted(_walk(server, peer, bench.seconds, kind, expression) for _ in range(bench.rounds))
            rate, per_core = runs[len(runs) // 2]
            rows.append({"figure": figure, "rate": round(rate), "per_core": round(per_core), "target": target})
    return rows
