"""The master of a sink's home group is lost between DECIDE and END, and in the middle of an END; the next one goes on.

Members are real processes.  A decision that was answered is the decision of the next master too; a driver that had no
answer asks again and is told the same by both.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.connections.blockingsession import BlockingSession
from gantry.client.requests.sink_requests import COMMIT, decided
from gantry.local.layout import Who
from testkit.batchledger import SINK, Batches
from testkit.localplay import Cluster
from testkit.patience import HANG_S
from testkit.transactionledger import delivered, open_count

FLAGS = [
    "--failover-timers", "fast", "--set", "transactions.check_interval_s=0.5", "--set", "topics.template_queues=1",
]  # fmt: skip


def leader(cluster: Cluster) -> Who:
    """Who leads now."""
    holder = cluster.record().holder
    assert holder is not None
    return Who(0, holder.member.ordinal)


def lose(cluster: Cluster, way: str) -> None:
    """The master goes, another one leads, and the old one comes back as a slave."""
    epoch, name = cluster.record().epoch, leader(cluster).name
    cluster.do("kill" if way == "killed" else "pause", name)
    cluster.until_served(epoch)
    if way != "killed":
        cluster.do("resume", name)


def written(cluster: Cluster, batches: Batches, home: str, rows: int) -> str:
    with cluster.client(leader(cluster)) as client:
        return batches.write(client, batches.batch(home), rows)


def checked(cluster: Cluster, batches: Batches) -> None:
    with cluster.client(leader(cluster)) as reader:
        cluster.until(lambda: open_count(reader) == 0, "what no batch has is rolled back")
        cluster.until(lambda: len({key.split("/")[0] for key in delivered(reader)}) == batches.finished, "all is shown")
        batches.check(delivered(reader))


def test_an_answered_decision_is_the_next_master_s_too(tmp_path: Path) -> None:
    batches = Batches(random.Random(1))
    with Cluster(tmp_path / "cluster", *FLAGS) as cluster, BlockingSinks(cluster.name_server) as sinks:
        cluster.until_all_in_sync()
        home = sinks.home_of(SINK)
        part, loser = written(cluster, batches, home, 30), written(cluster, batches, home, 10)
        session = BlockingSession(cluster.name_server, None)
        address = sinks.cluster().masters()[home]
        session.ask(address, decided(batches.batch(home), COMMIT, [part], [home]))
        session.close()
        lose(cluster, "killed")
        # The next driver has other rows for the batch, and is told that it comes too late.
        second = written(cluster, batches, home, 20)
        assert sinks.commit(batches.batch(home), [second], [home]).parts == (part,)
        batches.finished += 1
        assert loser != part
        checked(cluster, batches)


@pytest.mark.slow
def test_masters_that_are_lost_at_any_moment_of_a_commit_leave_every_batch_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    batches = Batches(chance)
    with Cluster(tmp_path / "cluster", *FLAGS) as cluster, BlockingSinks(cluster.name_server) as sinks:
        home = sinks.home_of(SINK)
        for number in range(8):
            cluster.until_all_in_sync()
            part = written(cluster, batches, home, 200)
            way = ("killed", "stands still")[number % 2]
            losing = threading.Timer(chance.uniform(0.0, 0.2), lambda way=way: lose(cluster, way))  # type: ignore[misc]
            losing.start()
            sinks.commit(batches.batch(home), [part], [home])
            batches.finished += 1
            losing.join(HANG_S)
        checked(cluster, batches)
