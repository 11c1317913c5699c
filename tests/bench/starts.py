"""How soon a broker serves, and how much memory it has: ours and Apache's, each start on its own.

A start is timed from the creation of the broker's process to the first acknowledged send, which is tried all the time.
Ours brings its name server along; Apache's runs already.  After kill -9 the log has 2 GiB, all of it in the page cache.

Memory is read idle (five seconds after the start) and while producers send at 64 x 8.  `anonymous` is what no file
backs; a JVM that touches its whole heap at the start, as Apache recommends, has that from then on.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from os import kill
from pathlib import Path
from typing import TYPE_CHECKING

from apache import apache, port_of, prepared
from contests import OURS, TOPIC, fill, make_topic
from frames import call, frame
from servers import Server, free_port, gantry

if TYPE_CHECKING:
    from scenarios import Bench

Figures = dict[str, dict[str, float]]
_LARGE_COUNT = 1_700_000  # 2 GiB
_GIVE_UP_S = 180.0
_IDLE_S = 5.0
_SEND = {"a": "bench", "b": TOPIC, "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0"}


def _first_ack_s(port: int, begin: float) -> float:
    while time.monotonic() < begin + _GIVE_UP_S:
        with contextlib.suppress(OSError, SystemExit), socket.create_connection(("127.0.0.1", port), 5) as connection:
            reply = call(connection, frame(310, 1, {**_SEND, "k": "false", "m": "false"}, b"x"))
            if b'"code":0' in reply:
                return time.monotonic() - begin
        time.sleep(0.005)
    raise SystemExit(f"nothing was acknowledged within {_GIVE_UP_S} s of a start")


def _ours(bench: Bench, folder: Path) -> Figures:
    port = free_port()

    @contextlib.contextmanager
    def started(where: Path) -> Iterator[tuple[Server, float]]:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(_first_ack_s, port, time.monotonic())
            with gantry(where, env=OURS, port=port) as server:
                yield server, first.result()

    with started(folder / "large") as (server, empty_s):
        fill(bench, server, TOPIC, _LARGE_COUNT)
        kill(server.pid, signal.SIGKILL)
    with started(folder / "large") as (_, large_s):
        pass
    return _figures(empty_s, large_s)


def _theirs(bench: Bench, folder: Path) -> Figures:
    broker = prepared(folder)

    def started() -> float:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(_first_ack_s, port_of(broker), time.monotonic())
            broker.start()
            return first.result()

    try:
        broker.start()  # and the name server, which stays
        broker.kill()
        shutil.rmtree(folder / "data")
        empty_s = started()
        assert broker.broker_pid is not None
        fill(bench, Server(broker.broker_pid, port_of(broker), 0.0), TOPIC, _LARGE_COUNT)
        broker.kill()
        large_s = started()
    finally:
        broker.close()
    return _figures(empty_s, large_s)


def _figures(empty_s: float, large_s: float) -> Figures:
    names = "start to first send, empty store", "start after kill -9 with 2 GiB"
    return {name: {"seconds": round(took, 3)} for name, took in zip(names, (empty_s, large_s), strict=True)}


def start_times(bench: Bench, side: str, folder: Path) -> Figures:
    """Both starts of one broker."""
    return (_ours if side == "ours" else _theirs)(bench, folder)


def memory_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process, and the part of it that no file backs."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return {"mib": round(found["Anonymous"], 1), "resident_mib": round(found["Rss"], 1)}


def footprints(bench: Bench, side: str, folder: Path) -> Figures:
    """Idle, and under load."""
    with gantry(folder, env=OURS) if side == "ours" else apache(folder) as server:
        make_topic(server.port, TOPIC)
        time.sleep(_IDLE_S)
        idle = memory_mib(server.pid)
        load = {"mode": "send", "connections": 64, "window": 8, "seconds": max(bench.seconds, 5.0)}
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(bench.load, server, **load)
            loaded = idle
            while not running.done():
                loaded = max(loaded, memory_mib(server.pid), key=lambda found: found["mib"])
                time.sleep(0.1)
            running.result()
    return {"anonymous memory, idle": idle, "anonymous memory, sends 64 x 8": loaded}
