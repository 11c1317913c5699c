"""What is measured, one function a figure; each returns a row of the results.

Rates swing with whatever else the machine does; the CPU per message of the server's process is the figure to
trust, and a yardstick counts only when it ran in the same session.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import kill
from pathlib import Path

import pages
from catchup import catch_up
from clientcost import client_cost
from consumption import consumption
from delays import delays
from failover import failover
from failoverclients import failover_clients
from filters import filters
from guarantees import guarantee
from httpqueues import http_queues
from lag import lag
from openings import openings
from pops import pops
from proxies import proxies
from replication import replication
from restarts import restarts
from scrapes import scrapes
from servers import Server, fixed_reply, gantry, redis
from transactions import transactions
from yardsticks import crowd, yardstick

Row = dict[str, object]


@dataclass(frozen=True)
class Bench:
    """Where the compiled tools and the stores of a run lie, and how long a point lasts."""

    tools: Path
    folder: Path
    seconds: float
    rounds: int

    def load(self, server: Server, **options: object) -> dict[str, float]:
        """One run of the load generator; raises when a reply was wrong."""
        command = [str(self.tools / "loadgen"), "--port", str(server.port), "--pid", str(server.pid)]
        for name, value in {"seconds": self.seconds, **options}.items():
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.seconds + 60)
        if done.returncode:
            raise SystemExit(f"loadgen failed: {done.stdout}{done.stderr}")
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def best(self, server: Server, **options: object) -> dict[str, float]:
        """The median round by CPU per message; each begins with memory that is there (see `pages`)."""
        runs = []
        for _ in range(self.rounds):
            pages.write_us(self.folder, 256, pages.TOUCH_BYTES)
            runs.append(self.load(server, **options))
        runs.sort(key=lambda run: run["cpu_us_per_message"])
        return runs[len(runs) // 2]


def _row(name: str, result: dict[str, float], target: str) -> Row:
    keep = ("rate", "p50_us", "p99_us", "p999_us", "cpu_us_per_message", "errors")
    return {"figure": name, **{key: result[key] for key in keep}, "target": target}


SENDS = [
    (1, 256, "<= 2.5 us CPU"),
    (64, 8, "<= 4 us CPU"),
    (64, 1, "<= 9 us CPU"),
    (1, 1, "p50 <= fixed reply + 30 us"),
]


def sends(bench: Bench) -> list[Row]:
    """Sends of 1 KiB under ASYNC_FLUSH, and the floor of a round trip."""
    rows = []
    with gantry(bench.folder / "sends") as server:
        for connections, window, target in SENDS:
            result = bench.best(server, mode="send", connections=connections, window=window)
            rows.append(_row(f"send 1 KiB {connections} x {window}", result, target))
    with fixed_reply() as server:
        for connections, window, _ in SENDS:
            result = bench.best(server, mode="fixed", connections=connections, window=window)
            rows.append(_row(f"fixed 120-byte reply {connections} x {window}", result, "yardstick"))
    return rows


def page_cache(bench: Bench) -> list[Row]:
    """What the page cache of this machine takes of every message, in memory that was in use a moment ago and not."""
    rows: list[Row] = []
    for name, records, settle_s in (("used before", 256, 0.0), ("used before", 1, 0.0), ("long free", 256, 20.0)):
        pages.write_us(bench.folder, 256, pages.TOUCH_BYTES)
        time.sleep(settle_s)
        cost = round(pages.write_us(bench.folder, records, pages.TOUCH_BYTES // 2), 3)
        figure = f"pwrite alone, runs of {records}, memory {name}"
        rows.append({"figure": figure, "cpu_us_per_message": cost, "target": "yardstick"})
    return rows


def pages_ahead(bench: Bench) -> list[Row]:
    """What it would bring to touch pages before the write comes, or to send them to the disk soon after."""
    rows: list[Row] = []
    for records in (8, 64, 256):
        for way in ("", "zeros", "read", "pace"):
            total = pages.TOUCH_BYTES // 2
            found = sorted(pages.ahead_us(bench.folder, records, total, way) for _ in range(bench.rounds))
            write, extra = found[len(found) // 2]
            figure = f"pwrite, runs of {records}, {way or 'as it is'}"
            note = f"{write:.3f} in the write, {extra:.3f} beside it"
            rows.append({"figure": figure, "cpu_us_per_message": round(write + extra, 3), "target": "", "note": note})
    return rows


def pulls(bench: Bench) -> list[Row]:
    """Pulls of 32 x 1 KiB from eight queues that were filled before."""
    with gantry(bench.folder / "pulls") as server:
        bench.load(server, mode="send", connections=1, window=256, count=200_000, seconds=20)
        result = bench.best(server, mode="pull", connections=8, window=1)
        return [_row("pull 32 x 1 KiB, 8 queues", result, "<= 1 us CPU")]


def sync_flush(bench: Bench) -> list[Row]:
    """SYNC_FLUSH at 64 x 8 beside a C loop with the run's own sync sizes, and beside Redis."""
    sizes = bench.folder / "sync.sizes"
    env = {"LD_PRELOAD": str(bench.tools / "sync_sizes.so"), "BENCH_SYNC_SIZES": str(sizes)}
    with gantry(bench.folder / "sync", flush="SYNC_FLUSH", env=env) as server:
        bench.load(server, mode="send", connections=64, window=8, seconds=1)
        sizes.write_bytes(b"")
        begin = time.monotonic()
        result = bench.load(server, mode="send", connections=64, window=8, warmup=0)
        took = time.monotonic() - begin
    replay = [str(bench.tools / "sync_replay"), str(sizes), str(bench.folder / "replay.bin"), "60"]
    loop = json.loads(subprocess.run(replay, capture_output=True, text=True, check=True, timeout=90).stdout)
    share = f"{100 * loop['seconds'] / took:.0f} % of the C loop ({loop['syncs']} syncs in {loop['seconds']:.2f} s)"
    rows = [_row("SYNC_FLUSH 64 x 8", result, ">= 40 % of the C loop, > Redis") | {"note": share}]
    (bench.folder / "redis").mkdir()
    with redis(bench.folder / "redis", fsync="always") as other:
        if other is not None:
            result = bench.best(other, mode="redis", connections=64, window=8)
            rows.append(_row("Redis appendfsync always 64 x 8", result, "yardstick"))
    return rows


def _first_send_s(folder: Path, bench: Bench) -> float:
    begin = time.monotonic()
    with gantry(folder) as server:
        bench.load(server, mode="send", count=1, warmup=0, seconds=5)
        return time.monotonic() - begin


def start_times(bench: Bench) -> list[Row]:
    """Start to the first acknowledged send: an empty store, and 2 GiB after kill -9."""
    rows: list[Row] = []
    empty = sorted(_first_send_s(bench.folder / f"empty{i}", bench) for i in range(bench.rounds))
    median = round(empty[len(empty) // 2], 3)
    rows.append({"figure": "start to first send, empty store", "seconds": median, "target": "< 0.8 s"})
    folder = bench.folder / "large"
    with gantry(folder) as server:
        bench.load(server, mode="send", connections=4, window=256, count=1_700_000, seconds=240)
        kill(server.pid, signal.SIGKILL)
    again = round(_first_send_s(folder, bench), 3)
    rows.append({"figure": "after kill -9 with a 2 GiB store", "seconds": again, "target": "< 1.5 s"})
    return rows


def _anonymous_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("smaps_rollup without Anonymous")


def footprint(bench: Bench) -> list[Row]:
    """Anonymous memory of an idle broker, and the cost of importing the client."""
    with gantry(bench.folder / "idle") as server:
        socket.create_connection(("127.0.0.1", server.port), 5).close()
        idle = _anonymous_mib(server.pid)
    script = "import time; a = time.perf_counter(); import gantry.client.producer; print(time.perf_counter() - a)"
    imports = sorted(
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    )
    return [
        {"figure": "idle anonymous RSS", "mib": round(idle, 1), "target": "<= 80 MiB"},
        {"figure": "import gantry.client.producer", "ms": round(1000 * imports[2], 1), "target": "< 60 ms"},
    ]


SCENARIOS: dict[str, Callable[[Bench], list[Row]]] = {
    "sends": sends,
    "yardstick": yardstick,
    "crowd": crowd,
    "pages": page_cache,
    "ahead": pages_ahead,
    "pulls": pulls,
    "pops": pops,
    "proxy": proxies,
    "sync": sync_flush,
    "start": start_times,
    "footprint": footprint,
    "transactions": transactions,
    "filters": filters,
    "delays": delays,
    "consumption": consumption,
    "lag": lag,
    "scrapes": scrapes,
    "httpqueues": http_queues,
    "replication": replication,
    "catch-up": catch_up,
    "restarts": restarts,
    "failover": failover,
    "failover-clients": failover_clients,
    "openings": openings,
    "client": client_cost,
    "guarantee": guarantee,
}
