"""Two groups of real brokers, and a sink whose driver died between its ENDs: the other group asks the sink's home."""

from __future__ import annotations

import random
from pathlib import Path

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.connections.blockingsession import BlockingSession
from gantry.client.requests.sink_requests import COMMIT, decided, ended
from gantry.local.layout import Who
from testkit.batchledger import SINK, Batches
from testkit.localplay import Cluster
from testkit.transactionledger import delivered, open_count

FLAGS = [
    "--groups", "2", "--replicas", "2", "--set", "transactions.check_interval_s=0.5",
    "--set", "topics.template_queues=1",
]  # fmt: skip


def leader(cluster: Cluster, group: int) -> Who:
    """Who leads a group now."""
    holder = cluster.record(group).holder
    assert holder is not None
    return Who(group, holder.member.ordinal)


def test_a_group_that_missed_the_end_of_a_batch_asks_its_home(tmp_path: Path) -> None:
    batches = Batches(random.Random(1))
    with Cluster(tmp_path / "cluster", *FLAGS) as cluster, BlockingSinks(cluster.name_server) as sinks:
        for group in (0, 1):
            cluster.until_all_in_sync(group)
        masters = sinks.cluster().masters()
        home = sinks.home_of(SINK)
        one = batches.batch(home)
        session = BlockingSession(cluster.name_server, None)
        with cluster.client(leader(cluster, 0)) as first, cluster.client(leader(cluster, 1)) as second:
            parts = [batches.write(client, one, rows) for client, rows in ((first, 7), (second, 9))]
            losers = [batches.write(client, one, 3) for client in (first, second)]
            session.ask(masters[home], decided(one, COMMIT, parts, sorted(masters)))
            session.ask(masters[home], ended(one, parts))
            assert losers
            for client, rows in ((first, 7), (second, 9)):
                cluster.until(lambda client=client: open_count(client) == 0, "everybody has heard")  # type: ignore[misc]
                assert len(delivered(client)) == rows
        session.close()
