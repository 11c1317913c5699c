"""The event loop with 100 000 open halves: how long anyone who comes waits for it while plain sends go on.

The broker is told to look at its open halves far more often than anybody would (every second instead of every thirty),
and connections of the producer group take the questions and never answer, so that passes of 100 000 questions run
nearly all the time.  The same load without an open half comes first, on the same broker.  The broker itself counts
(`gantry_loop_lag_seconds`, over moments).  Lag is also what a busy machine does to it, so the rows say for how
much of the time its loop was ready to run and had no core (/proc/PID/schedstat): from 1 % on, p99 is the machine's.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from frames import call, frame
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPIC = "Bench"
_GROUP = "bench-tx"
_COUNT = 100_000
_SECONDS = 10.0
_MEMBERS = 4
_RULES = {
    "GANTRY_TRANSACTIONS_CHECK_INTERVAL_S": "1",
    "GANTRY_TRANSACTIONS_IMMUNITY_S": "0",
    "GANTRY_TRANSACTIONS_CHECKS_MAX": "0",
}
_SAMPLE = re.compile(r"^(gantry_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class _Scrape:
    """One look at /metrics, and at how long the loop's thread has waited for a core."""

    def __init__(self, server: Server) -> None:
        self.at_s = time.monotonic()
        self.waited_s = int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[1]) / 1e9
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as page:
            text = page.read().decode()
        self._values = {f"{name}{{{labels}}}": float(value) for name, labels, value in _SAMPLE.findall(text)}

    def value(self, name: str, labels: str = "") -> float:
        return self._values.get(f"{name}{{{labels}}}", 0.0)

    def lag_ms(self, before: _Scrape, share: float) -> float:
        """A quantile of the lag since then; interpolated within its bucket."""
        head, tail = 'gantry_loop_lag_seconds_bucket{le="', '"}'
        names = [name for name in self._values if name.startswith(head)]
        counted = sorted(
            (float(name.removeprefix(head).removesuffix(tail)), self._values[name] - before._values.get(name, 0.0))
            for name in names
        )
        wanted, low, below = share * counted[-1][1], 0.0, 0.0
        for bound, up_to in counted:
            if up_to >= wanted:
                high = bound if bound != float("inf") else 2 * low
                return round(1000 * (low + (high - low) * (wanted - below) / max(up_to - below, 1.0)), 2)
            low, below = bound, up_to
        raise SystemExit("a histogram without +Inf")


@contextmanager
def _producers(port: int) -> Iterator[None]:
    """Members of the producer group: they take questions and say nothing."""
    members = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(_MEMBERS)]
    for number, member in enumerate(members):
        client = f"127.0.0.1@{number}"
        beat = {"clientID": client, "producerDataSet": [{"groupName": _GROUP}], "consumerDataSet": []}
        call(member, frame(34, 1, {}, json.dumps(beat).encode()))

    def take(member: socket.socket) -> None:
        room = bytearray(1 << 20)
        while member.recv_into(room):
            pass

    threads = [threading.Thread(target=take, args=(member,), daemon=True) for member in members]
    for member, thread in zip(members, threads, strict=True):
        member.settimeout(None)
        thread.start()
    try:
        yield
    finally:
        for member, thread in zip(members, threads, strict=True):
            member.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            member.close()


def _anonymous_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous: +(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def open_halves(bench: Bench) -> list[Row]:
    """Lag without and with the open halves, and what they cost."""
    with gantry(bench.folder / "open", env=_RULES) as server:
        load = {"mode": "send", "connections": 8, "window": 1, "queues": 4, "seconds": _SECONDS}
        bench.load(server, **load | {"seconds": 1.0})
        begin = _Scrape(server)
        alone = bench.load(server, **load)
        before, mib = _Scrape(server), _anonymous_mib(server.pid)
        half = {"mode": "half", "connections": 8, "window": 64, "queues": 4, "count": _COUNT, "warmup": 0}
        bench.load(server, **half, size=200, seconds=60)
        with _producers(server.port):
            bench.load(server, **load | {"seconds": 1.0})
            middle = _Scrape(server)
            busy = bench.load(server, **load)
            after = _Scrape(server)
        mib = _anonymous_mib(server.pid) - mib
    checked = 'result="asked"'
    asked = after.value("gantry_transaction_checks_total", checked)
    asked -= middle.value("gantry_transaction_checks_total", checked)
    moved = after.value("gantry_transactions_moved_total", 'kind="put_back"')
    count = after.value("gantry_transactions_open", f'topic="{_TOPIC}"')
    over = after.value("gantry_job_slices_over_total", 'job="check back"')
    slice_ms = 1000 * after.value("gantry_job_longest_slice_seconds", 'job="check back"')
    note = f"{count:.0f} open, {asked / _SECONDS:.0f} questions/s meanwhile, {moved:.0f} put back, "
    note += f"slices over 1 ms {over:.0f}, longest {slice_ms:.1f} ms, {1024 * mib / max(count, 1):.2f} KiB each; "
    rows: list[Row] = []
    for name, result, now, then, target in (
        ("loop lag p99, 8 plain producers", alone, before, begin, "yardstick"),
        ("the same with 100 000 open halves", busy, after, middle, "< 5 ms"),
    ):
        starved = 100 * (now.waited_s - then.waited_s) / (now.at_s - then.at_s)
        text = f"p50 {now.lag_ms(then, 0.5)} ms, p99.9 {now.lag_ms(then, 0.999)} ms"
        text += f"; ready to run and without a core {starved:.1f} % of the time"
        rows.append(
            {
                "figure": name,
                "rate": result["rate"],
                "p50_us": result["p50_us"],
                "p99_us": result["p99_us"],
                "cpu_us_per_message": result["cpu_us_per_message"],
                "target": target,
                "note": text if target == "yardstick" else note + text,
                "ms": now.lag_ms(then, 0.99),
            }
        )
    return rows
