"""What a popped and acknowledged message costs the broker, beside a pulled one.

A pop is not over when its acknowledgement is answered: the lease and the acknowledgement are delayed messages, which
the broker delivers when the lease has ended, and looks at once more.  So the CPU of the server is counted from the
first request until all of that has happened.  What an idle server takes in the same time is subtracted.

The load generator compares every record, acknowledges each batch of 32 by one request, and ends the run when a handle
was stale or a message came twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pages
from contests import POPPED, fill_for_pops, pop_options, pull_options, stored
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_IDLE_S = 3.0
_SETTLE_S = 9.0  # leases of 6 s, acknowledgements a second behind them
_REVIVE_QUEUES = 8
_REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, in seconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread ended meanwhile
            continue
    return total / 1e9


def idle_share(pid: int) -> float:
    """CPU seconds a second of a process that has nothing to do."""
    before = cpu_s(pid)
    time.sleep(_IDLE_S)
    return (cpu_s(pid) - before) / _IDLE_S


def until_settled(pid: int, load: Callable[[], dict[str, float]], settle_s: float) -> dict[str, float]:
    """Run the load and wait so many seconds; its result, with the CPU of all of that for each received message."""
    share, began, before = idle_share(pid), time.monotonic(), cpu_s(pid)
    result = load()
    time.sleep(settle_s)
    spent_s = cpu_s(pid) - before - share * (time.monotonic() - began)
    return {**result, "cpu_us_per_message": 1e6 * spent_s / max(1, result["received"])}


def pops(bench: Bench) -> list[Row]:
    """Pulls and pops of the same messages in turn; the row is the median round by their ratio."""
    rounds = []
    with gantry(bench.folder / "pops") as server:
        fill_for_pops(bench, server)
        for _ in range(bench.rounds):
            pages.write_us(bench.folder, 256, pages.TOUCH_BYTES)
            pull = bench.load(server, **pull_options(POPPED))
            pop = _popped(bench, server)
            rounds.append((pop["cpu_us_per_message"] / pull["cpu_us_per_message"], pull, pop))
    factors = sorted(factor for factor, _, _ in rounds)
    factor, pull, pop = sorted(rounds, key=lambda one: one[0])[len(rounds) // 2]
    keep = ("rate", "p50_us", "p99_us", "p999_us", "cpu_us_per_message", "errors")
    note = f"{factor:.2f} ({factors[0]:.2f} to {factors[-1]:.2f}) x the CPU of a pull"
    return [
        {"figure": "pull 32 x 1 KiB beside pops", **{key: pull[key] for key in keep}, "target": "yardstick"},
        {
            "figure": "pop 32 x 1 KiB, one BATCH_ACK, until settled",
            **{key: pop[key] for key in keep},
            "target": "<= 2 x the CPU of a pull",
            "note": note,
        },
    ]


def _popped(bench: Bench, server: Server) -> dict[str, float]:
    point = pop_options(POPPED)
    before = _revived(server)
    result = until_settled(server.pid, lambda: bench.load(server, **point), settle_s=_SETTLE_S)
    delivered = _revived(server) - before
    if delivered != 2 * result["pops"]:
        raise SystemExit(f"{result['pops']:.0f} pops, and {delivered} leases and acknowledgements were delivered")
    return result


def _revived(server: Server) -> int:
    return stored(server.port, _REVIVE_TOPIC, _REVIVE_QUEUES)
