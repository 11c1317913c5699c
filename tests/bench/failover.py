"""How long a group takes no messages: its master killed or standing still, the group handed over, a slave restarted.

Three members, SYNC_FLUSH and SYNC_MASTER with minInSync 2, the fast timers; a producer with four sends under way, a few
hundred a second, writes down when each was acknowledged.  A pause is the longest time without an acknowledgement from
the command on, seen by the client: it has to find the new master too.  Everything runs on this machine, so a pause
has whatever the machine does beside it.  After each kind of round everything acknowledged has to be there.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios import Bench, Row
    from testkit.localplay import Cluster, Producing

_TESTS = Path(__file__).resolve().parent.parent
_KILLS = int(os.environ.get("BENCH_FAILOVER_KILLS", "50"))
_PAUSES = int(os.environ.get("BENCH_FAILOVER_PAUSES", "20"))
_HANDOVERS = int(os.environ.get("BENCH_FAILOVER_HANDOVERS", "20"))
_RESTARTS = int(os.environ.get("BENCH_FAILOVER_RESTARTS", "10"))
_CALM_S = 1.5  # of acknowledgements before a round begins, and behind it
_TOPIC, _QUEUES = "pauses", 8


def failover(bench: Bench) -> list[Row]:
    """Pauses in milliseconds."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    from testkit.localplay import Cluster, Producing

    folder = bench.folder / "failover"
    folder.mkdir()
    rows: list[Row] = []
    with (
        Cluster(folder / "cluster", "--failover-timers", "fast", "--profile", "durable") as cluster,
        Producing(cluster.name_server, _TOPIC, folder / "ledger") as producing,
    ):
        for name, rounds, act, target in (
            ("slave restarted", _RESTARTS, _restart_a_slave, "no pause beyond LEAVE"),
            ("planned handover", _HANDOVERS, _hand_over, "< 1000 ms"),
            ("master stands still, fast timers", _PAUSES, _stand_still, "p50 < 5000 ms"),
            ("master killed and kept down, fast timers", _KILLS, _kill, "p50 < 5000 ms"),
        ):
            if not rounds:
                continue
            pauses = [_pause_ms(cluster, producing, act) for _ in range(rounds)]
            rows.append(_row(name, pauses, _lost(cluster, producing), target))
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def _pause_ms(cluster: Cluster, producing: Producing, act: Callable[[Cluster], Callable[[], None]]) -> int:
    """One round; the cluster is whole again when this returns."""
    cluster.until_all_in_sync()
    time.sleep(_CALM_S)
    begun_ms = time.time_ns() // 1_000_000
    repair = act(cluster)
    before = len(producing.acknowledged())
    end = time.monotonic() + 60
    while len(producing.acknowledged()) < before + 100 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(_CALM_S)
    instants = sorted(at for at in producing.acknowledged().values() if at >= begun_ms)
    repair()
    return max(after - before for before, after in itertools.pairwise([begun_ms, *instants]))


def _kill(cluster: Cluster) -> Callable[[], None]:
    holder = cluster.record().holder
    assert holder is not None
    cluster.do("kill", "broker-a", "--master", "--keep-down")
    return lambda: cluster.do("start", f"broker-a-{holder.member.ordinal}")


def _stand_still(cluster: Cluster) -> Callable[[], None]:
    holder = cluster.record().holder
    assert holder is not None
    name = f"broker-a-{holder.member.ordinal}"
    cluster.do("pause", name)
    return lambda: cluster.do("resume", name)


def _hand_over(cluster: Cluster) -> Callable[[], None]:
    holder = cluster.record().holder
    assert holder is not None
    cluster.do("handover", f"broker-a/{(holder.member.ordinal + 1) % 3}")
    return lambda: None


def _restart_a_slave(cluster: Cluster) -> Callable[[], None]:
    holder = cluster.record().holder
    assert holder is not None
    slave = f"broker-a-{(holder.member.ordinal + 1) % 3}"
    cluster.do("stop", slave)
    return lambda: None


def _lost(cluster: Cluster, producing: Producing) -> int:
    acknowledged = producing.acknowledged()
    return len(acknowledged.keys() - set(cluster.stored(_TOPIC, _QUEUES).values()))


def _row(name: str, pauses: list[int], lost: int, target: str) -> Row:
    ordered = sorted(pauses)
    return {
        "figure": f"pause of writes: {name}, {len(pauses)} rounds",
        "p50_ms": ordered[len(ordered) // 2],
        "max_ms": ordered[-1],
        "errors": lost,
        "target": f"{target}, none lost",
    }
