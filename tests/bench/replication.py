"""What replication costs: CPU of master and slave per message, and the delay of an answer.

Both run on this machine beside the load generator, on as many cores as there are: rates say nothing, the CPU of each
process per message does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from servers import Server, free_port, running

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TICKS_S = os.sysconf("SC_CLK_TCK")
_CATCH_UP_S_MAX = 300.0


@contextmanager
def broker(folder: Path, role: str, ha_port: int, secret: Path | None) -> Iterator[Server]:
    """A master or a slave; without a secret nobody can follow."""
    folder.mkdir(exist_ok=True)
    env = {
        "GANTRY_STORE_ROOT": str(folder / "store"),
        "GANTRY_ROLE": role,
        "GANTRY_ID": "1" if role == "SLAVE" else "0",
        "GANTRY_NETWORK_BIND": "127.0.0.1",
        "GANTRY_NETWORK_PORT": str(free_port()),
        "GANTRY_NETWORK_VIP_PORT": "-2",
        "GANTRY_NETWORK_HTTP_PORT": "-1",
        "GANTRY_NETWORK_HA_API_PORT": "-1",
        "GANTRY_NETWORK_HA_PORT": str(ha_port),
    }
    if secret is not None:
        env["GANTRY_REPLICATION_SECRET_FILE"] = str(secret)
        env["GANTRY_REPLICATION_MASTER"] = f"127.0.0.1:{ha_port}"
    begin = time.monotonic()
    with running([str(Path(sys.executable).with_name("gantry")), "broker"], env) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"gantry broker did not start: {line!r}")
        yield Server(process.pid, int(line.split()[1].rpartition(":")[2]), time.monotonic() - begin)


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def log_bytes(folder: Path) -> int:
    """How far the log has come: the last block that is not zero, by halving; the last segment is allocated ahead."""
    block = 4096
    zeros = bytes(block)
    for segment in sorted((folder / "store" / "commitlog").iterdir(), reverse=True):
        low, high = 0, segment.stat().st_size // block
        with segment.open("rb") as file:
            while low < high:
                middle = (low + high) // 2
                file.seek(middle * block)
                low, high = (middle + 1, high) if file.read(block) != zeros else (low, middle)
        if low:
            return int(segment.name) + low * block
    return 0


def _wait_equal(master: Path, slave: Path) -> None:
    end = time.monotonic() + _CATCH_UP_S_MAX
    while log_bytes(slave) < log_bytes(master):
        if time.monotonic() > end:
            raise SystemExit("the slave did not catch up")
        time.sleep(0.02)


def _point(bench: Bench, server: Server, slave: Server | None, connections: int, window: int) -> dict[str, float]:
    """One load, with the slave's CPU per message beside the master's."""
    runs = []
    for _ in range(bench.rounds):
        before = cpu_s(slave.pid) if slave is not None else 0.0
        run = bench.load(server, mode="send", connections=connections, window=window, warmup=0)
        spent = cpu_s(slave.pid) - before if slave is not None else 0.0
        run["slave_us"] = 1e6 * spent / max(run["rate"] * bench.seconds, 1)
        runs.append(run)
    runs.sort(key=lambda run: run["cpu_us_per_message"])
    return runs[len(runs) // 2]


def replication(bench: Bench) -> list[Row]:
    """64 x 8 and 1 x 1 of 1 KiB alone, and with one slave under both roles."""
    folder, secret = bench.folder / "replication", bench.folder / "secret"
    folder.mkdir()
    secret.write_text("a secret for figures\n")
    rows: list[Row] = []
    with broker(folder / "alone", "ASYNC_MASTER", free_port(), None) as master:
        alone = {point: _point(bench, master, None, *point) for point in ((64, 8), (1, 1))}
    rows += [_row(f"alone {a} x {b}", run, run, "yardstick") for (a, b), run in alone.items()]
    for role in ("SYNC_MASTER", "ASYNC_MASTER"):
        ha_port = free_port()
        homes = folder / f"{role}-master", folder / f"{role}-slave"
        with (
            broker(homes[0], role, ha_port, secret) as master,
            broker(homes[1], "SLAVE", ha_port, secret) as slave,
        ):
            _wait_joined(bench, master)
            for point, target in (((64, 8), "master <= 1.4 x, both <= 2.2 x"), ((1, 1), "p50 <= alone + 500 us")):
                run = _point(bench, master, slave, *point)
                rows.append(_row(f"{role}, one slave, {point[0]} x {point[1]}", run, alone[point], target))
            _wait_equal(*homes)
    return rows


def _wait_joined(bench: Bench, master: Server) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            bench.load(master, mode="send", count=1, warmup=0, seconds=1)
            time.sleep(4)  # who joins a set that is large enough has to keep up for three seconds first
            return
        except SystemExit:
            time.sleep(0.2)
    raise SystemExit("the slave never joined")


def _row(name: str, run: dict[str, float], alone: dict[str, float], target: str) -> Row:
    base = alone["cpu_us_per_message"]
    both = run["cpu_us_per_message"] + run["slave_us"]
    return {
        "figure": name,
        "rate": run["rate"],
        "p50_us": run["p50_us"],
        "p99_us": run["p99_us"],
        "master_us": run["cpu_us_per_message"],
        "slave_us": round(run["slave_us"], 2),
        "master_x": round(run["cpu_us_per_message"] / base, 2),
        "both_x": round(both / base, 2),
        "errors": run["errors"],
        "target": target,
    }
