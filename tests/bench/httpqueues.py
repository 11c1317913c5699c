"""HTTP queues through one process: sends, receives with deletes, batches, and calls that wait.

The server is a process of its own in front of a broker, so its CPU is its own.  `rate_per_core` is what one whole core
for it would give; on a machine where broker, load and server share the cores, `rate` is less.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from servers import gantry, running

if TYPE_CHECKING:
    from scenarios import Bench, Row

_HELD_S = 60.0  # two rounds of polls of 30 s
_POINTS = (
    ("send 100 B, 1 at a time", "send", 1, "p50 <= 3 ms"),
    ("send 100 B", "send", 64, ">= 5 000 /s of one core"),
    ("receive and delete", "take", 64, ">= 5 000 /s of one core"),
    ("send in batches of 16", "send16", 16, ">= 25 000 /s of one core"),
    ("receive and delete in batches of 16", "take16", 16, ">= 25 000 /s of one core"),
)


def http_queues(bench: Bench) -> list[Row]:
    """One row for each kind of call, and one for 5 000 polls that are held."""
    rows: list[Row] = []
    with gantry(bench.folder / "httpqueues") as broker:
        command = [str(Path(sys.executable).with_name("gantry")), "queues", "--queues-port", "0", "--http-port", "-1"]
        command += ["--namesrv", f"127.0.0.1:{broker.nameserver_port}"]
        with running(command) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            for queue in ("busy", "idle"):
                asked = urllib.request.Request(f"http://127.0.0.1:{port}/queues/{queue}", method="PUT")
                urllib.request.urlopen(asked, timeout=30).close()
            for name, mode, connections, target in _POINTS:
                found = _load(port, process.pid, "busy", mode, connections, bench.seconds)
                rows.append({"figure": f"HTTP queues: {name}", **found, "target": target})
            held = _load(port, process.pid, "idle", "poll", 5_000, _HELD_S)
            rows.append({"figure": "HTTP queues: 5 000 polls held", **held, "target": "< 200 MB, < 2 % of a core"})
    return rows


def _load(port: int, pid: int, queue: str, mode: str, connections: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).with_name("httpload.py"))]
    command += [str(port), str(pid), queue, mode, str(connections), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found
