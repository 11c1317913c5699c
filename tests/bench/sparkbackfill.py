"""What producers notice of a query that reads everything there is, from the slave or from the master.

Two members of one group in processes of their own (`gantry local up`, acknowledged when both have a message), eight
producers with one message under way each.  The backfill repeats an aggregate over a full topic for as long as they are
measured.

Producers and master run on one core, the slave and Spark on the other: on machines of their own they would not take
each other's time either.  The slave shares its core with Spark, and the master waits for its acknowledgement.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from servers import running
from sparkqueries import WHOLE, Ground, Row, fill

from testkit import sparksession

_HERE = Path(__file__).parent
_GANTRY = str(_HERE.parents[1] / ".venv/bin/gantry")
_MESSAGES, _SECONDS, _PRODUCERS = 200_000, 5, 8


class _Member(NamedTuple):
    pid: int
    host: str
    port: int


class _Pair(NamedTuple):
    nameserver: str
    master: _Member
    slave: _Member
    others: list[int]


@contextmanager
def _pair(folder: Path) -> Iterator[_Pair]:
    command = [_GANTRY, "local", "up", "--dir", str(folder), "--replicas", "2", "--links", "direct"]
    command += ["--profile", "replicated", "--set", "store.disk_used_refuse=1.0", "--set", "store.disk_used_clean=1.0"]
    with running(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready nameserver="):
            raise SystemExit(f"the pair did not start: {line!r}")
        try:
            yield _status(folder, line.split()[1].rpartition("=")[2])
        finally:
            subprocess.run([_GANTRY, "local", "down", "--dir", str(folder)], check=False, stdout=subprocess.DEVNULL)


def _status(folder: Path, nameserver: str) -> _Pair:
    command = [_GANTRY, "local", "status", "--dir", str(folder), "--output", "json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = {}
    for member in said["members"]:
        host, _, port = member["addresses"]["broker"].rpartition(":")
        found[member["role"]] = _Member(member["pid"], host, int(port))
    return _Pair(nameserver, found["master"], found["slave"], list(said["pids"].values()))


def backfill(folder: Path, rounds: int) -> list[Row]:
    """The producers' p99 alone, beside a backfill from the slave, and beside one from the master."""
    loadgen = folder / "loadgen"
    subprocess.run(["gcc", "-O2", "-o", str(loadgen), "loadgen.c"], cwd=_HERE, check=True)
    cores = sorted(os.sched_getaffinity(0))
    with _pair(folder / "pair") as pair:
        for topic in ("backfill", "load"):
            make = [_GANTRY, "topic", "create", topic, "--queues", "8", "--namesrv", pair.nameserver]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        fill(pair.nameserver, "backfill", 8, _MESSAGES // 8)
        _pin([pair.master.pid, *pair.others], cores[0])
        _pin([pair.slave.pid], cores[-1])
        spark = sparksession.start(folder)
        try:
            _pin(_descendants(os.getpid()) - {pair.master.pid, pair.slave.pid, *pair.others}, cores[-1])
            ground = Ground(spark, pair.nameserver, folder, rounds)
            found: dict[str, list[float]] = {"alone": [], "slave": [], "master": []}
            read: dict[str, list[int]] = {"slave": [], "master": []}
            for _ in range(rounds):
                found["alone"].append(_p99_ms(loadgen, pair.master, cores[0]))
                for source, counts in read.items():
                    with _reading(ground, source) as rows:
                        found[source].append(_p99_ms(loadgen, pair.master, cores[0]))
                    counts.append(sum(rows))
        finally:
            spark.stop()
    return [_row(name, found, read) for name in found]


def _p99_ms(loadgen: Path, master: _Member, core: int) -> float:
    command = [str(loadgen), "--host", master.host, "--port", str(master.port), "--pid", str(master.pid)]
    command += ["--mode", "send", "--topic", "load", "--queues", "8", "--connections", str(_PRODUCERS)]
    command += ["--window", "1", "--seconds", str(_SECONDS), "--warmup", "2"]
    done = subprocess.run(
        ["taskset", "-c", str(core), *command], capture_output=True, text=True, timeout=_SECONDS + 60, check=False
    )
    if done.returncode:
        raise SystemExit(f"loadgen failed: {done.stdout}{done.stderr}")
    return float(json.loads(done.stdout)["p99_us"]) / 1000


@contextmanager
def _reading(ground: Ground, source: str) -> Iterator[list[int]]:
    """A backfill that begins again until the block ends; the messages that it read."""
    done, rows = threading.Event(), list[int]()

    def read() -> None:
        while not done.is_set():
            data = ground.spark.read.format("gantrymq").option("gantrymq.namesrv", ground.nameserver)
            data = data.option("subscribe", "backfill").option("readFrom", source).option("minPartitions", "2")
            rows.append(data.load().selectExpr("count(*) as messages", *WHOLE).collect()[0].messages)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield rows
    finally:
        done.set()
        reader.join()


def _pin(pids: Iterable[int], core: int) -> None:
    """Every thread of these processes, and whatever they start later."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


def _descendants(pid: int) -> set[int]:
    """All processes that this one has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    left = [pid]
    while left:
        children = parents.get(left.pop(), [])
        found.update(children)
        left += children
    return found


def _row(name: str, found: dict[str, list[float]], read: dict[str, list[int]]) -> Row:
    beside = "alone" if name == "alone" else f"beside a backfill from the {name}"
    note = "" if name == "alone" else f"{statistics.median(read[name]):.0f} messages read in the middle round"
    each = sorted(found[name])
    text = f"{statistics.median(each):.2f} ms ({each[0]:.2f}..{each[-1]:.2f})"
    return {"figure": f"producers' p99, {beside}", "found": text, "target": "", "note": note}
