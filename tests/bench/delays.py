"""Messages with a time of their own, by the hundred thousand: how late they are stored under their real topic.

Each message names its due time; the broker's store time of the delivered record says when it was delivered, so lateness
is read out of what consumers get and needs no clock of ours.  Two shapes: 100 000 due within one second, and 10 000 due
in every second.  `over_s` is from the first due time to the last delivery.
"""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from frames import call, frame
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPIC = "DelayBench"
_QUEUES = 4
_BODY = b"x" * 100
_SENT_AT_ONCE = 500
_SETTLE_S = 3.0
_GIVE_UP_S = 60.0
_OUT_MS = re.compile(rb"TIMER_OUT_MS\x01(\d+)\x02")
_STORE_MS_AT = 56  # in a record with IPv4 hosts
_TICKS_S = os.sysconf("SC_CLK_TCK")


def _frame(nth: int, due_ms: int) -> bytes:
    pairs = f"UNIQ_KEY\x01{os.getpid():08X}{nth:08X}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    ext = {"a": "bench", "b": _TOPIC, "c": "TBW102", "d": "4", "e": str(nth % _QUEUES), "f": "0", "h": "0"}
    ext |= {"g": str(due_ms), "i": pairs, "j": "0", "k": "false", "m": "false"}
    return frame(310, nth, ext, _BODY).replace(b'"flag": 0', b'"flag": 2', 1)


def _send(port: int, dues_ms: list[int]) -> float:
    """One way, all on one connection; how many were taken a second."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for at in range(0, len(dues_ms), _SENT_AT_ONCE):
            part = range(at, min(at + _SENT_AT_ONCE, len(dues_ms)))
            connection.sendall(b"".join([_frame(nth, dues_ms[nth]) for nth in part]))
        call(connection, frame(28, len(dues_ms), {}))  # everything before it is taken by then
    return len(dues_ms) / (time.monotonic() - begun)


def _delivered(connection: socket.socket) -> int:
    total = 0
    for queue in range(_QUEUES):
        reply = call(connection, frame(30, 1, {"topic": _TOPIC, "queueId": str(queue)}))
        found = re.search(rb'"offset":"?(\d+)', reply)
        total += int(found[1]) if found else 0
    return total


def _lateness_ms(connection: socket.socket) -> tuple[list[int], int]:
    """(lateness of each, the last store time), out of the records themselves."""
    late, last_ms = [], 0
    for queue in range(_QUEUES):
        offset = -1
        following = 0
        while following != offset:
            offset = following
            ext = {"consumerGroup": "gbench", "topic": _TOPIC, "queueId": str(queue), "queueOffset": str(offset)}
            ext |= {"maxMsgNums": "1000", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
            reply = call(connection, frame(11, 1, ext | {"subscription": "*", "subVersion": "0"}))
            following = int((re.search(rb'"nextBeginOffset":"?(\d+)', reply) or [b"", b"%d" % offset])[1])
            at = 8 + int.from_bytes(reply[5:8], "big")
            while at < len(reply):
                size = int.from_bytes(reply[at : at + 4], "big")
                store_ms = int.from_bytes(reply[at + _STORE_MS_AT : at + _STORE_MS_AT + 8], "big")
                due = _OUT_MS.search(reply, at, at + size)
                assert due is not None
                late.append(store_ms - int(due[1]))
                last_ms = max(last_ms, store_ms)
                at += size
    return sorted(late), last_ms


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def _point(server: Server, scenario: str, count: int, seconds: float) -> Row:
    """Send all, wait until they are due, and read when they were delivered."""
    ahead_s = _SETTLE_S + count / 4_000
    first_ms = int((time.time() + ahead_s) * 1000)
    rate = _send(server.port, [first_ms + int(nth * 1000 * seconds / count) for nth in range(count)])
    time.sleep(max(0.0, first_ms / 1000 - time.time() - 0.5))
    before_s = _cpu_s(server.pid)
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        deadline = first_ms / 1000 + seconds + _GIVE_UP_S
        while _delivered(connection) < count:
            if time.time() > deadline:
                raise SystemExit(f"{_delivered(connection)} of {count} delayed messages were delivered")
            time.sleep(0.2)
        cpu_s = _cpu_s(server.pid) - before_s
        late, last_ms = _lateness_ms(connection)
    assert len(late) == count and late[0] >= 0, f"{len(late)} read back, the earliest {late[0]} ms late"
    return {
        "figure": scenario,
        "messages": count,
        "sent/s": round(rate),
        "over_s": round((last_ms - first_ms) / 1000, 2),
        "late_p50_ms": late[count // 2],
        "late_p99_ms": late[count * 99 // 100],
        "late_max_ms": late[-1],
        "cpu_us/message": round(cpu_s * 1e6 / count, 1),
    }


def delays(bench: Bench) -> list[Row]:
    """100 000 due in one second; 10 000 due in each of five seconds."""
    rows: list[Row] = []
    for scenario, count, seconds in (("delays: due at once", 100_000, 1.0), ("delays: 10 000 a second", 50_000, 5.0)):
        with gantry(bench.folder / f"delays-{count}") as server:
            rows.append(_point(server, scenario, count, seconds))
    return rows
