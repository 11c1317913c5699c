"""How fast an empty slave fills, and what that costs producers beside it.

The same three things are asked of a producer at full rate (4 x 16, as fast as it gets answers) and at half of that:

    no slave       the master alone
    in step        a slave follows, as it does in a group on any day: what replication costs
    beside         a slave fills itself from an empty folder with what is there, while it is produced

`kept` is against no slave, `of in step` against a group in which nobody catches up.  Load generator, master and slave
share this machine, so CPU is told by process.  A point begins with memory that is there (see `pages`), unless it says
something else; for what comes after four seconds beside producers (`seconds`, `rate_all`) there is none left.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pages
from replication import broker, cpu_s, log_bytes
from servers import Server, free_port

if TYPE_CHECKING:
    from scenarios import Bench, Row

_MESSAGES = int(os.environ.get("BENCH_CATCH_UP_MESSAGES", "1700000"))  # 2 GiB
_CATCH_UP_S_MAX = 300.0
_LOOK_S = 0.02
_CHUNK_BYTES = 256 << 10
_TOUCHED = 2 << 30  # of what a load of some seconds writes, with that of a slave beside it
_LOAD = {"mode": "send", "connections": 4, "window": 16, "warmup": 0}


class _Pair:
    """A master that was filled, and slaves that come and go."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = bench.folder / "catch-up"
        self.folder.mkdir()
        self.secret = self.folder / "secret"
        self.secret.write_text("a secret for figures\n")
        self.ha_port = free_port()
        self.full, self.empty = self.folder / "full", self.folder / "empty"

    @contextmanager
    def master(self) -> Iterator[Server]:
        """The master, whose log holds _MESSAGES."""
        with broker(self.full, "ASYNC_MASTER", self.ha_port, self.secret) as server:
            self.bench.load(server, mode="send", connections=4, window=256, count=_MESSAGES, seconds=240)
            yield server

    @contextmanager
    def slave(self, touched: int) -> Iterator[Server]:
        """A slave in an empty folder, removed afterwards; before it starts so many bytes of memory are touched."""
        if touched:
            pages.write_us(self.folder, 256, touched)
        try:
            with broker(self.empty, "SLAVE", self.ha_port, self.secret) as server:
                yield server
        finally:
            shutil.rmtree(self.empty)

    def wait(self, end: int) -> float:
        """Until the slave has the log up to there; how long that took."""
        begin = time.monotonic()
        while log_bytes(self.empty) < end:
            if time.monotonic() - begin > _CATCH_UP_S_MAX:
                raise SystemExit("the slave did not catch up")
            time.sleep(_LOOK_S)
        return time.monotonic() - begin


def catch_up(bench: Bench) -> list[Row]:
    """An empty slave beside nobody else, what the disk gives, and slaves beside producers."""
    pair = _Pair(bench)
    with pair.master() as master:
        rows = [_alone(pair, master, is_touched) for is_touched in (False, True)]
        rows += _disk(pair.folder, log_bytes(pair.full))
        rows += _beside(pair, master)
    return rows


def _alone(pair: _Pair, master: Server, is_touched: bool) -> Row:
    runs, total = [], log_bytes(pair.full)
    for _ in range(pair.bench.rounds):
        with pair.slave(total if is_touched else 0) as slave:
            before = cpu_s(master.pid), cpu_s(slave.pid)
            took = pair.wait(total)
            spent = cpu_s(master.pid) - before[0], cpu_s(slave.pid) - before[1]
            runs.append((total / 1e6 / took, spent))
    mb_s, (master_s, slave_s) = sorted(runs)[len(runs) // 2]
    memory = "memory that is there" if is_touched else "memory as it comes"
    return {
        "figure": f"catch-up: nobody beside it, {memory}",
        "mib": round(total / 2**20),
        "mb_s": round(mb_s),
        "slave_us": round(1e6 * slave_s / _MESSAGES, 2),
        "master_us": round(1e6 * master_s / _MESSAGES, 2),
        "target": ">= 300 MB/s or the disk's speed",
    }


def _disk(folder: Path, total: int) -> list[Row]:
    """As many bytes into an allocated file of the same folder, a chunk at a time, by one process alone."""
    rows: list[Row] = []
    chunk = os.urandom(_CHUNK_BYTES)
    path = folder / "written"
    for is_touched in (False, True):
        if is_touched:
            pages.write_us(folder, 256, total)
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, total)
            begin = time.monotonic()
            for at in range(0, total - _CHUNK_BYTES, _CHUNK_BYTES):
                os.pwrite(file.fileno(), chunk, at)
            written_s = time.monotonic() - begin
            os.fdatasync(file.fileno())
            synced_s = time.monotonic() - begin
        path.unlink()
        memory = "memory that is there" if is_touched else "memory as it comes"
        figure = f"catch-up: as much by a loop of pwrite, {memory}"
        rows.append({"figure": figure, "mb_s": round(total / 1e6 / written_s), "target": "yardstick"})
        rows.append({"figure": f"{figure}, and synced", "mb_s": round(total / 1e6 / synced_s), "target": "yardstick"})
    return rows


def _beside(pair: _Pair, master: Server) -> list[Row]:
    bench, rows, full = pair.bench, [], 0.0
    for name in ("full rate", "half rate"):
        options = {"rate": round(full / 2)} if full else {}
        runs = []
        for _ in range(bench.rounds):
            pages.write_us(pair.folder, 256, _TOUCHED)
            alone = bench.load(master, **_LOAD, **options)
            behind = log_bytes(pair.full)
            with pair.slave(_TOUCHED) as slave:
                beside = _one_beside(pair, master, slave, options)
                beside |= _until_there(pair, master, behind, options)
                time.sleep(4)  # who joins a set that is large enough has to keep up for three seconds first
                pages.write_us(pair.folder, 256, _TOUCHED)
                step = bench.load(master, **_LOAD, **options)
            runs.append((beside["rate"] / alone["rate"], alone, step, beside))
        kept, alone, step, beside = sorted(runs, key=lambda run: run[0])[len(runs) // 2]
        full = full or alone["rate"]
        rows += [
            _row(f"{name}, no slave", alone, "yardstick"),
            _row(f"{name}, in step", step, "yardstick") | {"kept": f"{100 * step['rate'] / alone['rate']:.0f} %"},
            _row(f"{name}, beside", beside, "producers keep >= 80 %")
            | {
                "kept": f"{100 * kept:.0f} %",
                "of in step": f"{100 * beside['rate'] / step['rate']:.0f} %",
                **{key: round(beside[key], 1) for key in ("mb_s", "slave_us", "mib", "seconds", "rate_all")},
            },
        ]
    return rows


def _row(name: str, run: dict[str, float], target: str) -> Row:
    figures: Row = {key: run[key] for key in ("p50_us", "p99_us")}
    figures |= {"rate": round(run["rate"]), "master_us": round(run["cpu_us_per_message"], 2)}
    return {"figure": f"catch-up: {name}", **figures, "target": target}


def _one_beside(pair: _Pair, master: Server, slave: Server, options: dict[str, float]) -> dict[str, float]:
    """A load while the slave is far behind, after a second in which the master has found out."""
    begin, before, have = time.monotonic(), cpu_s(slave.pid), log_bytes(pair.empty)
    run = pair.bench.load(master, **{**_LOAD, "warmup": 1}, **options)
    came, took = log_bytes(pair.empty) - have, time.monotonic() - begin
    spent = cpu_s(slave.pid) - before
    return {**run, "mb_s": came / 1e6 / took, "slave_us": 1e6 * spent * pages.RECORD_BYTES / max(came, 1)}


def _until_there(pair: _Pair, master: Server, end: int, options: dict[str, float]) -> dict[str, float]:
    """Loads of a second, in memory as it comes, until the slave has what was there when it came."""
    begin, rates = time.monotonic(), []
    while log_bytes(pair.empty) < end:
        if time.monotonic() - begin > _CATCH_UP_S_MAX:
            raise SystemExit("the slave did not catch up beside producers")
        rates.append(pair.bench.load(master, **_LOAD, seconds=1, **options)["rate"])
    return {"mib": end / 2**20, "seconds": time.monotonic() - begin, "rate_all": sum(rates) / max(len(rates), 1)}
