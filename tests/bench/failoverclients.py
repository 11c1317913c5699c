"""What other people's clients get when a master is lost: for how long each sends and reads nothing.

The master is killed and kept down, or cut off from everybody (its packets are dropped, so no connection is refused).
Three members, SYNC_FLUSH and SYNC_MASTER with minInSync 2.  A client sends one message after the other, or is a push
consumer.  A stall is the longest time between two messages that it reported, from the fault on until it went on for a
while.  All clients run at once, so a new master has all of them at its door.

Java's clients look for routes and send heartbeats each 30 s by default, both in one thread.  How often they do decides
how long they stall, so each has several settings: `java-5.x 1 s/30 s` looks for routes each second.

    BENCH_FAILOVER_CLIENT_TIMERS=default BENCH_FAILOVER_CLIENT_FAULTS=cut BENCH_FAILOVER_CLIENT_ROUNDS=3 \\
        python tests/bench/run.py --only failover-clients
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interop.processes import Driver
    from scenarios import Bench, Row
    from testkit.localplay import Cluster

_TESTS = Path(__file__).resolve().parent.parent
_ROUNDS = int(os.environ.get("BENCH_FAILOVER_CLIENT_ROUNDS", "5"))
_TIMERS = os.environ.get("BENCH_FAILOVER_CLIENT_TIMERS", "fast")
_FAULTS = os.environ.get("BENCH_FAILOVER_CLIENT_FAULTS", "kill,cut").split(",")
_TOPIC = "stalls"
_JAVA = ("java-4.9.7", "java-5.x")
_API_TIMEOUT_MS = 3000  # Java's default
_INTERVALS = ((1, 1), (1, 30), (30, 30))  # seconds between two looks for routes, and between two heartbeats
_PRODUCERS = (*((name, pair) for name in _JAVA for pair in _INTERVALS), ("cpp-2.1.11", None))
_CONSUMERS = tuple((name, pair) for name in _JAVA for pair in _INTERVALS[1:])
# What is done to the master, how that is undone, and what it is called.
_WAYS = {
    "kill": ("kill {} --keep-down", "start {}", "the master is killed"),
    "cut": ("partition {}", "heal", "the master is cut off"),
}
_CALM_S = 3.0  # of messages after which a client has gone on
_WITHIN_S = 120.0


class _Watched:
    """A client, and when it reported its last message."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self.stalls: dict[str, list[float]] = {fault: [] for fault in _FAULTS}
        self._last_s = self._longest_s = self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """A master is lost now."""
        self._last_s, self._longest_s, self._since_s = now_s, 0.0, 0.0

    def look(self) -> None:
        """Take what it reported since the last look."""
        if not self.driver.take():
            return
        now_s = time.monotonic()
        if now_s - self._last_s > self._longest_s:
            self._longest_s, self._since_s = now_s - self._last_s, now_s
        self._last_s = now_s

    @property
    def goes_on(self) -> bool:
        """Whether its longest stall is over for a while."""
        return 0 < self._since_s < self._last_s - _CALM_S

    def end(self, fault: str) -> float:
        """Keep the stall of this round."""
        self.stalls[fault].append(self._longest_s)
        return self._longest_s


def failover_clients(bench: Bench) -> list[Row]:
    """Stalls in seconds."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    from testkit.localplay import Cluster

    folder = bench.folder / "failover-clients"
    folder.mkdir()
    watched: list[_Watched] = []
    with Cluster(folder / "cluster", "--failover-timers", _TIMERS, "--profile", "durable") as cluster:
        try:
            for name, intervals in _PRODUCERS:
                made = _started(folder, name, "producer", intervals, cluster.name_server)
                made.driver.begin("load", group=f"load-{len(watched)}", topic=_TOPIC, prefix=made.name, pause=20)
                watched.append(made)
            for name, intervals in _CONSUMERS:
                made = _started(folder, name, "push consumer", intervals, cluster.name_server)
                made.driver.call("subscribe", id="one", group=f"read-{len(watched)}", topic=_TOPIC)
                watched.append(made)
            for _ in range(_ROUNDS):
                for fault in _FAULTS:
                    _round(cluster, watched, fault)
        finally:
            for each in watched:
                each.driver.kill()
                each.driver.wait(10.0)
    return [_row(each, fault) for fault in _FAULTS for each in watched]


def _started(folder: Path, name: str, kind: str, intervals: tuple[int, int] | None, name_server: str) -> _Watched:
    from interop.clients import CLIENTS

    shown = name if intervals is None else f"{name} {intervals[0]} s/{intervals[1]} s"
    driver = CLIENTS[name].start(folder / f"{shown}-{kind}".replace(" ", "-").replace("/", "-"), name_server)
    driver.live_for(3600)
    if intervals is not None:
        poll_s, heartbeat_s = intervals
        driver.call("intervals", poll=1000 * poll_s, heartbeat=1000 * heartbeat_s, timeout=_API_TIMEOUT_MS)
    return _Watched(f"{shown} {kind}", driver)


def _round(cluster: Cluster, watched: list[_Watched], fault: str) -> None:
    cluster.until_all_in_sync()
    holder = cluster.record().holder
    assert holder is not None
    act, repair, _ = (text.format(f"broker-a-{holder.member.ordinal}").split() for text in _WAYS[fault])
    _look_for(_CALM_S, watched)
    for each in watched:
        each.begin(time.monotonic())
    cluster.do(*act)
    end = time.monotonic() + _WITHIN_S
    while time.monotonic() < end and not all(each.goes_on for each in watched):
        _look_for(0.5, watched)
    for each in watched:
        print(f"  {fault}: {each.name}: {each.end(fault):.2f} s", file=sys.stderr, flush=True)
    cluster.do(*repair)


def _look_for(seconds: float, watched: list[_Watched]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for each in watched:
            each.look()
        time.sleep(0.01)


def _row(each: _Watched, fault: str) -> Row:
    ordered = sorted(each.stalls[fault])
    return {
        "figure": f"stall, {_WAYS[fault][2]}, {_TIMERS} timers: {each.name}, {len(ordered)} rounds",
        "p50_s": round(ordered[len(ordered) // 2], 2),
        "max_s": round(ordered[-1], 2),
        "target": "what it is",
    }
