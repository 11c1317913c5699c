"""The broker beside a C server that cuts frames, writes each turn with one pwrite and sends a fixed reply.

Both run for the whole scenario and are measured in turns, so that other work on the machine meets both.  The ratio is
the figure: of the CPU per message, the median over the rounds of broker and yardstick measured one after the other.
"""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import TYPE_CHECKING

import pages
from servers import c_server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

POINTS: list[tuple[str, dict[str, int], str]] = [
    ("1 x 1", {"connections": 1, "window": 1}, "<= 2 x CPU"),
    ("64 x 1", {"connections": 64, "window": 1}, "<= 2 x CPU"),
    ("512 x 1", {"connections": 512, "window": 1}, "<= 2 x CPU"),
    ("64 x 8", {"connections": 64, "window": 8}, "<= 2.5 x CPU"),
    ("1 x 256", {"connections": 1, "window": 256}, "<= 2.5 x CPU"),
    ("8 x 4, batches of 32", {"connections": 8, "window": 4, "per": 32, "code": 320}, "-"),
]
_TOUCH_BYTES = 256 << 20  # both servers' files together
_CROWD = 9_800  # half of the open files that most systems allow, 20 000


def crowd(bench: Bench) -> list[Row]:
    """Sends of 64 connections beside thousands that are open and silent, both ways to read and write sockets."""
    rows: list[Row] = []
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name, together in (("together", "true"), ("by the loop", "false")):
        with gantry(bench.folder / f"crowd {together}", env={"GANTRY_NETWORK_TOGETHER": together}) as server:
            alone = bench.best(server, mode="send", connections=64, window=1)
            with contextlib.ExitStack() as silent:
                for _ in range(_CROWD):
                    silent.enter_context(socket.create_connection(("127.0.0.1", server.port), 5))
                beside = bench.best(server, mode="send", connections=64, window=1)
        for what, result in (("alone", alone), (f"beside {_CROWD} silent ones", beside)):
            kept = {key: result[key] for key in ("rate", "p50_us", "p99_us", "cpu_us_per_message")}
            rows.append({"figure": f"send 64 x 1 {what}, sockets {name}", **kept, "target": "-"})
    return rows


def yardstick(bench: Bench) -> list[Row]:
    """Sends of 1 KiB, and the same frames to the C server."""
    rows: list[Row] = []
    (bench.folder / "c").mkdir()
    with gantry(bench.folder / "broker") as ours, c_server(bench.tools, bench.folder / "c") as other:
        for name, options, target in POINTS:
            pairs = []
            for _ in range(bench.rounds):
                pages.write_us(bench.folder, 256, _TOUCH_BYTES)
                broker = bench.load(ours, mode="send", **options)
                pairs.append((broker, bench.load(other, mode="fixed", **options)))
            pairs.sort(key=lambda pair: pair[0]["cpu_us_per_message"] / pair[1]["cpu_us_per_message"])
            broker, c = pairs[len(pairs) // 2]
            cpu, c_cpu = broker["cpu_us_per_message"], c["cpu_us_per_message"]
            rows.append(
                {
                    "figure": f"broker beside the C server {name}",
                    "rate": broker["rate"],
                    "p50_us": broker["p50_us"],
                    "p99_us": broker["p99_us"],
                    "cpu_us_per_message": cpu,
                    "c_rate": c["rate"],
                    "c_p50_us": c["p50_us"],
                    "c_cpu_us_per_message": c_cpu,
                    "ratio": round(cpu / c_cpu, 2),
                    "target": target,
                }
            )
    return rows
