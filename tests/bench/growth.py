"""`make bench-growth`: what a broker costs when there is much of something: rate, memory and start time by size.

    python tests/bench/growth.py [--only topics,queues,connections,groups,log,readers] [--seconds 3] [--rounds 3]
        [--most N] [--write]

    topics       1 to 10 000 topics of eight queues; messages go to all of them in turn
    queues       8 to 100 000 queues, in topics of at most 100
    connections  1 to 10 000 producers with one request under way each
    groups       up to 2 000 groups with eight held pulls each on a topic of their own, beside 64 x 8 producers
    log          1 to 100 GiB of log: segments that are one blank record each and have no blocks on the disk
    readers      producers at half of their full rate: alone, beside 512 readers that read 4 KiB at a time, slowly,
                 and beside a consumer that reads a backlog from the disk

Each size has a broker on an empty folder of its own.  It is loaded, its memory is read, it is killed (SIGKILL), and a
start on what it left is timed to its ready line.  Rounds run one after the other; a row has the medians, and how
many of its rounds were marked (`quiet`).  --most leaves out larger sizes, for a short run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from os import kill
from pathlib import Path

from consumption import FarBehind, drop_pages
from contests import fill
from frames import frame
from growthreport import Measured, write
from peers import HEARTBEAT, Held, connect, heartbeat
from quiet import Watch
from run import compile_tools, machine
from servers import Server, gantry, running
from starts import memory_mib

from scenarios import Bench

_ROOT = Path(__file__).resolve().parent.parent.parent
_TOPIC = "Bench"
_LOAD = {"mode": "send", "connections": 64, "window": 8, "queues": 8}
_FILES, _SPARE = 32_768, 100  # half of the open files are for connections, some of those for the rest of the process
_ENTRIES, _ENTRIES_MIN = 300_000, 1_000  # of a queue file: with many queues the files are small
_GIB = 1 << 30
_BLANK = struct.Struct(">II")
_MAGIC_BLANK = 0xCBD43194
_AHEAD = 200
_READERS = 512
_BACKLOG = 700_000  # messages of 1 KiB: some 840 MiB of log
_SUSPEND_MS = 60_000  # asking again is to cost this process little

TOPICS = (1, 10, 100, 1_000, 10_000)
QUEUES = ((1, 8), (1, 100), (10, 100), (100, 100), (1_000, 100))
CONNECTIONS = (1, 8, 64, 512, 2_000, 10_000)
GROUPS = (0, 10, 100, 500, 2_000)
LOG_GIB = (1, 10, 50, 100)

Found = dict[str, float]


def _settings(queues: int) -> dict[str, str]:
    return {
        "GANTRY_TOPICS_TOPICS_MAX": "20000",
        "GANTRY_STORE_SEGMENT_BYTES": "1GiB",
        "GANTRY_STORE_QUEUE_FILE_ENTRIES": str(max(_ENTRIES_MIN, _ENTRIES * 8 // max(queues, 8))),
    }


def _make_topics(port: int, names: list[str], queues: int) -> None:
    """Pipelined: a broker has ten thousand of them before it is measured."""
    fields = {"defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        for at in range(0, len(names), _AHEAD):
            part = names[at : at + _AHEAD]
            connection.sendall(b"".join([frame(17, nth, {**fields, "topic": name}) for nth, name in enumerate(part)]))
            _receive_ok(connection, len(part))


def _receive_ok(connection: socket.socket, count: int) -> None:
    """So many replies of code 0, which may come together."""
    data = bytearray()
    while count:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = connection.recv(1 << 16)
            if not piece:
                raise SystemExit("the broker closed a connection")
            data += piece
        size = 4 + int.from_bytes(data[:4], "big")
        if b'"code":0' not in data[:size]:
            raise SystemExit(f"a topic was refused: {bytes(data[:size])!r}")
        del data[:size]
        count -= 1


def _point(
    bench: Bench, folder: Path, load: dict[str, object], env: dict[str, str], prepare: Callable[[Server], object]
) -> Found:
    """Load a broker, read its memory, kill it and start it again; the folder is gone afterwards."""
    with gantry(folder, env=env) as server:
        prepare(server)
        os.sync()
        run = bench.load(server, **load)
        memory = memory_mib(server.pid)
        kill(server.pid, signal.SIGKILL)
    with gantry(folder, env=env) as again:
        started_s = again.started_s
    shutil.rmtree(folder)
    figures = {key: run[key] for key in ("rate", "cpu_us_per_message", "p50_us", "p99_us")}
    return {**figures, "mib": memory["mib"], "start_s": started_s}


def topics(bench: Bench, folder: Path, count: int) -> Found:
    """So many topics of eight queues."""
    names = [f"{_TOPIC}{number:05d}" for number in range(count)]
    load = {**_LOAD, "topics": count}
    return _point(bench, folder, load, _settings(8 * count), lambda server: _make_topics(server.port, names, 8))


def queues(bench: Bench, folder: Path, count: int) -> Found:
    """So many queues, at most 100 in a topic."""
    number = next(a for a, b in QUEUES if a * b == count)
    names = [f"{_TOPIC}{nth:05d}" for nth in range(number)]
    each = count // number
    load = {**_LOAD, "topics": number, "queues": each}
    return _point(bench, folder, load, _settings(count), lambda server: _make_topics(server.port, names, each))


def connections(bench: Bench, folder: Path, count: int) -> Found:
    """So many producers with a window of one."""
    load = {**_LOAD, "connections": count, "window": 1, "warmup": 1.0}
    return _point(bench, folder, load, _settings(8), lambda server: None)


def groups(bench: Bench, folder: Path, count: int) -> Found:
    """So many waiting groups beside producers that send to another topic."""
    with gantry(folder, env=_settings(8)) as server:
        _make_topics(server.port, [_TOPIC, "waited"], 8)
        with _Waiting(server.port, count):
            run = bench.load(server, **_LOAD)
            memory = memory_mib(server.pid)
    shutil.rmtree(folder)
    return {key: run[key] for key in ("rate", "cpu_us_per_message", "p50_us", "p99_us")} | {"mib": memory["mib"]}


class _Waiting:
    """Groups with a connection each that hold a pull for each of eight queues, in a loop and a thread of their own."""

    def __init__(self, port: int, count: int) -> None:
        self._port, self._count = port, count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._errors: list[str] = []

    def __enter__(self) -> _Waiting:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(300)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        if self._errors:
            raise SystemExit(f"waiting groups: {self._errors[0]}")

    async def _begin(self) -> None:
        for number in range(self._count):
            peer = await connect(self._port, self._errors.append)
            await peer.call(HEARTBEAT, {}, heartbeat(f"127.0.0.1@{number}", f"waiting-{number}", ["waited"]))
            offsets = dict.fromkeys((("waited", queue_id) for queue_id in range(8)), 0)
            Held(f"waiting-{number}", offsets, _SUSPEND_MS, lambda record: None, self._errors.append).begin(peer)


def log(bench: Bench, folder: Path, gib: int) -> Found:
    """So many segments of 1 GiB before the first message: each is one blank record and a hole."""
    segments = folder / "commitlog"
    segments.mkdir(parents=True)
    for number in range(gib):
        with (segments / f"{number * _GIB:020d}").open("wb") as file:
            file.truncate(_GIB)
            file.write(_BLANK.pack(_GIB, _MAGIC_BLANK))
    return _point(bench, folder, dict(_LOAD), _settings(8), lambda server: None)


@contextlib.contextmanager
def _slow_readers(port: int) -> Iterator[None]:
    script = str(Path(__file__).with_name("slowreaders.py"))
    with running([sys.executable, script, str(port), _TOPIC, str(_READERS)]) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "reading\n":
            raise SystemExit("the slow readers did not start")
        yield
        if process.poll() is not None:
            raise SystemExit("a slow reader ended with an error")


def readers(bench: Bench, folder: Path, which: int) -> Found:
    """Half load: 0 alone, 1 beside slow readers, 2 beside a consumer that is far behind."""
    env = {"GANTRY_STORE_WARM_BYTES": "64MiB", "GANTRY_STORE_SEGMENT_BYTES": "128MiB"}
    with gantry(folder, env=env) as server:
        fill(bench, server, _TOPIC, _BACKLOG)
    drop_pages(folder)
    with gantry(folder, env=env) as server:
        full = bench.load(server, **_LOAD)["rate"]
        beside = (contextlib.nullcontext(), _slow_readers(server.port), FarBehind(server.port))[which]
        with beside as reader:
            run = bench.load(server, **_LOAD, rate=max(1, round(full / 2)))
            memory = memory_mib(server.pid)
    shutil.rmtree(folder)
    found = {key: run[key] for key in ("rate", "cpu_us_per_message", "p50_us", "p99_us")}
    found |= {"kept": run["rate"] / (full / 2), "mib": memory["mib"]}
    return found | ({"read_mib": reader.bytes / (1 << 20)} if isinstance(reader, FarBehind) else {})


_SIZES: dict[str, tuple[Callable[[Bench, Path, int], Found], tuple[int, ...]]] = {
    "topics": (topics, TOPICS),
    "queues": (queues, tuple(a * b for a, b in QUEUES)),
    "connections": (connections, CONNECTIONS),
    "groups": (groups, GROUPS),
    "log": (log, LOG_GIB),
    "readers": (readers, (0, 1, 2)),
}


def _measured(bench: Bench, name: str, size: int, rounds: int) -> Measured:
    found, marked, noises = [], 0, []
    for number in range(rounds):
        watch = Watch(())
        found.append(_SIZES[name][0](bench, bench.folder / f"{name}-{size}-{number}", size))
        noises.append(watch.noise())
        marked += noises[-1].is_marked
    figures = {key: statistics.median([one[key] for one in found]) for key in found[0]}
    load = max(noise.load for noise in noises)
    return Measured(name, size, figures, rounds, marked, load)


def _connections_max() -> int:
    """How many connections a broker takes here; the limit of open files is raised where that is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, _FILES), max(hard, _FILES)))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS[-1], soft // 2 - _SPARE)


def main() -> None:
    """Parse the arguments, run, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(_SIZES))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the stores lie; default: below tests/bench")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "growth")
    parser.add_argument("--write", action="store_true", help="the table also into tests/bench/RESULTS.md")
    options = parser.parse_args()
    os.environ["GANTRY_COMPILED"] = "required"  # the slow twin would be measured without a word
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rows.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    told = f"make bench-growth ROUNDS={options.rounds} SECONDS={options.seconds:g}"
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(dir=options.folder or Path(__file__).parent) as folder:
        bench = Bench(Path(folder) / "tools", Path(folder), options.seconds, 1)
        bench.tools.mkdir()
        compile_tools(bench.tools)
        for name in options.only.split(","):
            rows, sizes = [], [size for size in _SIZES[name][1] if size <= options.most]
            for size in sorted({min(size, _connections_max()) if name == "connections" else size for size in sizes}):
                print(f"{name} {size} ...", file=sys.stderr, flush=True)
                rows.append(asdict(_measured(bench, name, size, options.rounds)))
            kept[name] = {"said": f"`{told} ONLY={name}`, {when}, {machine()}", "rows": rows}
            path.write_text(json.dumps(kept, indent=1) + "\n")
    print(write(options.out, kept, list(_SIZES), is_committed=options.write))


if __name__ == "__main__":
    main()
