"""What other people's clients get when a master is killed and kept down: for how long each sends and reads nothing.

Three members, SYNC_FLUSH and SYNC_MASTER with minInSync 2, the fast timers.  Each client is as it comes: one message
after the other, or a push consumer.  A stall is the longest time between two messages that it reported, from the kill
on until it went on for a while.  All clients run at once, so a new master has all of them at its door.
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
_TOPIC = "stalls"
_PRODUCERS = ("java-4.9.7", "java-5.x", "cpp-2.1.11")
_CONSUMERS = ("java-4.9.7", "java-5.x")
_CALM_S = 3.0  # of messages after which a client has gone on
_WITHIN_S = 120.0


class _Watched:
    """A client, and when it reported its last message."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self.stalls: list[float] = []
        self._last_s = self._longest_s = self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """A master is killed now."""
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

    def end(self) -> None:
        """Keep the stall of this round."""
        self.stalls.append(self._longest_s)


def failover_clients(bench: Bench) -> list[Row]:
    """Stalls in seconds."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    from interop.clients import CLIENTS
    from testkit.localplay import Cluster

    folder = bench.folder / "failover-clients"
    folder.mkdir()
    watched: list[_Watched] = []
    with Cluster(folder / "cluster", "--failover-timers", "fast", "--profile", "durable") as cluster:
        try:
            for name in _PRODUCERS:
                driver = CLIENTS[name].start(folder / f"{name}-producer", cluster.name_server)
                driver.live_for(3600)
                driver.begin("load", group=f"load-{name[:6]}", topic=_TOPIC, prefix=name, pause=20)
                watched.append(_Watched(f"{name} producer", driver))
            for name in _CONSUMERS:
                driver = CLIENTS[name].start(folder / f"{name}-consumer", cluster.name_server)
                driver.live_for(3600)
                driver.call("subscribe", id="one", group=f"read-{name[:6]}", topic=_TOPIC)
                watched.append(_Watched(f"{name} push consumer", driver))
            for _ in range(_ROUNDS):
                _round(cluster, watched)
        finally:
            for each in watched:
                each.driver.kill()
                each.driver.wait(10.0)
    return [_row(each) for each in watched]


def _round(cluster: Cluster, watched: list[_Watched]) -> None:
    cluster.until_all_in_sync()
    holder = cluster.record().holder
    assert holder is not None
    _look_for(_CALM_S, watched)
    for each in watched:
        each.begin(time.monotonic())
    cluster.do("kill", "broker-a", "--master", "--keep-down")
    end = time.monotonic() + _WITHIN_S
    while time.monotonic() < end and not all(each.goes_on for each in watched):
        _look_for(0.5, watched)
    for each in watched:
        each.end()
        print(f"  {each.name}: {each.stalls[-1]:.2f} s", file=sys.stderr, flush=True)
    cluster.do("start", f"broker-a-{holder.member.ordinal}")


def _look_for(seconds: float, watched: list[_Watched]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for each in watched:
            each.look()
        time.sleep(0.01)


def _row(each: _Watched) -> Row:
    ordered = sorted(each.stalls)
    return {
        "figure": f"stall after the loss of a master: {each.name}, {len(ordered)} rounds",
        "p50_s": round(ordered[len(ordered) // 2], 2),
        "max_s": round(ordered[-1], 2),
        "target": "what it is",
    }
