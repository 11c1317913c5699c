"""`make bench-compare`: Apache's broker 5.x and ours in turns, and what their figures are beside each other.

    python tests/bench/compare.py [--only sends,pulls,...] [--rounds 5] [--seconds 3] [--warmup 30]
        [--pin split] [--write]

Both brokers of a contest run at the same time, on fresh stores of one folder, and only one is under load: the same load
of the same generator goes to ours, then to Apache's, round after round.  So a ratio is one of neighbours in time.
Before the first round each broker gets the loads of its contest for --warmup seconds, at a bounded rate, then unbounded
for a moment: a JVM's second compiler has seen the code by then.  Before every point the disk is synced and memory is
there (see `pages`).

`others` is no contest: Kafka, NATS JetStream and Redis Streams beside both, for orientation.

--pin split gives the brokers the first half of the cores and the generator the other; --pin all, the default, lets
everything run everywhere.

Nothing here asserts a figure; a wrong reply, a wrong byte or a message too few ends the run.  Rounds are kept in
build/compare/rounds.json, a contest that runs again replaces its own; the report is made of all that is there.
--write also puts the table into tests/bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import comparereport
import pages
from apache import apache, apache_pair, is_here
from comparereport import Round
from contests import CONTESTS, OURS, TOPIC, Contest, Options, Point, make_topic, options_for, stored, wait_stored
from others import orientation
from pops import until_settled
from quiet import Watch, cpu_s
from replication import broker
from run import compile_tools, machine
from servers import Server, free_port, gantry
from starts import footprints, start_times

from scenarios import Bench

_ROOT = Path(__file__).resolve().parent.parent.parent
_SIDES = ("ours", "apache")
_SOLO = {"start": start_times, "memory": footprints}
_SOLO_ROUNDS_MAX = 3
_NAMES = [*CONTESTS, *_SOLO, "others"]
_FREE_BYTES_MIN = 30 << 30
_WARM_REQUESTS_S, _WARM_BYTES_S = 20_000, 64 << 20
_CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def _on_cores(pin: str, what: str) -> Iterator[None]:
    """What is started inside runs on the cores of the brokers, or of the load."""
    if pin == "all" or len(_CORES) < 2:
        yield
        return
    half = len(_CORES) // 2
    os.sched_setaffinity(0, _CORES[:half] if what == "brokers" else _CORES[half:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, _CORES)


@contextmanager
def _pair_of_ours(folder: Path) -> Iterator[tuple[Server, Server]]:
    folder.mkdir(parents=True)
    secret, ha_port = folder / "secret", free_port()
    secret.write_text("a secret for figures\n")
    with (
        broker(folder / "master", "SYNC_MASTER", ha_port, secret) as master,
        broker(folder / "slave", "SLAVE", ha_port, secret) as slave,
    ):
        yield master, slave


class _Arena:
    """Both brokers of one contest, and its rounds."""

    def __init__(self, bench: Bench, contest: Contest, pin: str, warmup_s: float) -> None:
        self._bench, self._contest, self._pin, self._warmup_s = bench, contest, pin, warmup_s
        self._servers: dict[str, Server] = {}
        self._slaves: dict[str, Server] = {}

    def run(self, name: str, rounds: int) -> list[Round]:
        """All rounds of all points."""
        with ExitStack() as stack:
            with _on_cores(self._pin, "brokers"):
                for side in _SIDES:
                    self._start(stack, side, self._bench.folder / name / side)
            with _on_cores(self._pin, "load"):
                return self._rounds(name, rounds)

    def _start(self, stack: ExitStack, side: str, folder: Path) -> None:
        if self._contest.is_replicated:
            pair = _pair_of_ours(folder) if side == "ours" else apache_pair(folder)
            self._servers[side], self._slaves[side] = stack.enter_context(pair)
        else:
            flush = self._contest.flush
            one = gantry(folder, flush=flush, env=OURS) if side == "ours" else apache(folder, flush=flush)
            self._servers[side] = stack.enter_context(one)

    def _rounds(self, name: str, rounds: int) -> list[Round]:
        for server in self._servers.values():
            self._until_taken(server)
            self._contest.prepare(self._bench, server)
        points = self._contest.points(self._bench, list(self._servers.values()))
        for server in self._servers.values():
            self._warm(server, points)
        points = self._contest.points(self._bench, list(self._servers.values()))
        turns = [(number, point, side) for number in range(rounds) for point in points for side in _SIDES]
        found = [self._measured(name, number, point, side) for number, point, side in turns]
        for side, slave in self._slaves.items():
            wait_stored(slave.port, TOPIC, stored(self._servers[side].port, TOPIC))
        return found

    def _until_taken(self, server: Server) -> None:
        """The topic is there, and a message to it is taken; a master waits for its slave first."""
        deadline = time.monotonic() + 60
        while True:
            try:
                make_topic(server.port, TOPIC)
                self._bench.load(server, mode="send", count=1, warmup=0, seconds=1)
                return
            except SystemExit:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _warm(self, server: Server, points: list[Point]) -> None:
        for point in points:
            options = options_for(point, self._bench, server)
            size = int(str(options.get("size", 1024))) * int(str(options.get("per", options.get("batch", 1))))
            rate = max(200, min(_WARM_REQUESTS_S, _WARM_BYTES_S // size))
            bounded = {"rate": rate, "seconds": self._warmup_s / len(points), "warmup": 0}
            self._load(server, {**bounded, **options})
            self._load(server, {**options, "seconds": min(2.0, self._bench.seconds), "warmup": 0})
            time.sleep(point.settle_s)

    def _load(self, server: Server, options: Options) -> dict[str, float]:
        seconds = float(str(options.get("seconds", self._bench.seconds)))
        return Bench(self._bench.tools, self._bench.folder, seconds, 1).load(server, **options)

    def _measured(self, name: str, number: int, point: Point, side: str) -> Round:
        server, slave = self._servers[side], self._slaves.get(side)
        os.sync()
        pages.write_us(self._bench.folder, 256, pages.TOUCH_BYTES)
        before = stored(server.port, TOPIC) if point.is_stored else 0
        pids = [one.pid for one in (*self._servers.values(), *self._slaves.values())]
        watch, slave_s = Watch(pids), cpu_s(slave.pid) if slave else 0.0
        options = options_for(point, self._bench, server)
        if point.settle_s:
            result = until_settled(server.pid, lambda: self._load(server, options), point.settle_s)
        else:
            result = self._load(server, options)
        noise = watch.noise()
        if point.is_stored:
            wait_stored(server.port, TOPIC, before + round(result["answered"]))
        figures = {key: result[key] for key in ("rate", "cpu_us_per_message", "p50_us", "p99_us", "p999_us")}
        if slave:
            figures["cpu_us_per_message"] += 1e6 * (cpu_s(slave.pid) - slave_s) / max(result["answered"], 1)
        return Round(name, point.name, side, number, figures, noise)


def _solo(name: str, bench: Bench, rounds: int, pin: str) -> list[Round]:
    """Starts and memory: each broker alone."""
    found = []
    for number in range(min(rounds, _SOLO_ROUNDS_MAX)):
        for side in _SIDES:
            folder = bench.folder / f"{name}-{number}-{side}"
            os.sync()
            watch = Watch(())
            with _on_cores(pin, "brokers"):
                figures = _SOLO[name](bench, side, folder)
            noise = watch.noise()
            found += [Round(name, row, side, number, one, noise) for row, one in figures.items()]
            shutil.rmtree(folder)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=float, default=30.0)
    parser.add_argument("--only", default=",".join(_NAMES))
    parser.add_argument("--pin", choices=("all", "split"), default="all")
    parser.add_argument("--folder", type=Path, help="where the stores lie; default: below tests/bench")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "compare")
    parser.add_argument("--write", action="store_true", help="the table also into tests/bench/RESULTS.md")
    return parser.parse_args()


def main() -> None:
    """Parse the arguments, run, and make the report."""
    options = _options()
    os.environ["GANTRY_COMPILED"] = "required"  # the slow twin would be measured without a word
    names = options.only.split(",")
    if unknown := [name for name in names if name not in _NAMES]:
        raise SystemExit(f"no such contest: {', '.join(unknown)}; there are {', '.join(_NAMES)}")
    if not is_here():
        raise SystemExit("java and mvn are missing; apt-get install default-jdk-headless maven")
    run = comparereport.Run(
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), machine=machine(), load=os.getloadavg(),
        command="make bench-compare" + "".join(
            f" {key.upper()}={getattr(options, key)}" for key in ("only", "rounds", "seconds", "warmup", "pin")
            if key != "only" or names != _NAMES
        ),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=options.folder or Path(__file__).parent) as folder:
        bench = Bench(Path(folder) / "tools", Path(folder), options.seconds, 1)
        bench.tools.mkdir()
        compile_tools(bench.tools)
        for name in names:
            print(f"{time.strftime('%H:%M:%S')} {name} ...", file=sys.stderr, flush=True)
            if shutil.disk_usage(folder).free < _FREE_BYTES_MIN:
                raise SystemExit(f"{folder}: less than {_FREE_BYTES_MIN >> 30} GiB free; contests write up to 25 GiB")
            if name == "others":
                rounds = orientation(bench, min(options.rounds, _SOLO_ROUNDS_MAX))
            elif name in _SOLO:
                rounds = _solo(name, bench, options.rounds, options.pin)
            else:
                arena = _Arena(bench, CONTESTS[name], options.pin, options.warmup)
                rounds = arena.run(name, options.rounds)
                shutil.rmtree(bench.folder / name)
            comparereport.keep(options.out, name, run, rounds)
    print(comparereport.write(options.out, _NAMES, is_committed=options.write))


if __name__ == "__main__":
    main()
