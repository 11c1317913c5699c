"""What our Python client costs its own process: 64 sends in flight, and consuming with an ack for each message.

The broker is another process; the client is a third one (`clientload`), whose CPU per message is the figure.  Messages
have 256 bytes, tags and a key, in a topic of four queues.  With BENCH_CLIENT_OLD=FOLDER (the `broker/src` of another
checkout) its client runs alternately with ours against the same broker, so that both have the same machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_HERE = Path(__file__).parent
_COUNT = int(os.environ.get("BENCH_CLIENT_MESSAGES", "20000"))
_ROUNDS = 5
_PLAYS = (
    ("send", "64 sends in flight", "<= 20 us, >= 30k/s"),
    ("iterate", "consume and ack", "<= 8 us, >= 80k/s"),
    ("listen", "consume by a listener", "what it is"),
)


def _run(server: Server, play: str, topic: str, source: str) -> dict[str, float]:
    command = [sys.executable, str(_HERE / "clientload.py"), play, f"127.0.0.1:{server.nameserver_port}", topic]
    env = {**os.environ, **({"PYTHONPATH": source} if source else {})}
    done = subprocess.run([*command, str(_COUNT)], capture_output=True, text=True, timeout=300, env=env)
    if done.returncode:
        raise SystemExit(f"clientload {play} failed: {done.stdout}{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def client_cost(bench: Bench) -> list[Row]:
    """The median round of each play, by CPU per message; of both clients when there is another one."""
    old = os.environ.get("BENCH_CLIENT_OLD", "")
    sources = {"": "", **({", old": old} if old else {})}
    rows: list[Row] = []
    with gantry(bench.folder / "clients") as server:
        _run(server, "send", "Filled", "")
        _run(server, "send", "Filled", "")
        for play, name, target in _PLAYS:
            found: dict[str, list[dict[str, float]]] = {label: [] for label in sources}
            for _ in range(_ROUNDS):
                for label, source in sources.items():
                    found[label].append(_run(server, play, "Sent" if play == "send" else "Filled", source))
            for label, runs in found.items():
                runs.sort(key=lambda run: run["cpu_us_per_message"])
                median = runs[len(runs) // 2]
                rows.append(
                    {
                        "figure": f"client, {name}{label}",
                        "rate": round(median["rate"]),
                        "cpu_us_per_message": round(median["cpu_us_per_message"], 2),
                        "target": target,
                    }
                )
    return rows
