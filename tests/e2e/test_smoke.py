"""What each commit has to do on real kubelets: install, produce, lose the master's node, upgrade and go back.

One test, because a cluster of four nodes is brought up for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.kube import upgrading
from testkit.kube.cluster import Cluster
from testkit.kube.orders import BROKERCLUSTER, HOME, LEASE, Orders

pytestmark = pytest.mark.timeout(1500)
PRODUCER_S = 600  # at most; it is stopped when what it was meant to see is over


def test_an_installed_cluster_loses_a_node_and_is_upgraded_and_back_and_nothing_acknowledged_is_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    orders = Orders(cluster)
    upgrading.load(cluster)
    orders.install_as_is(upgrading.chart(tmp_path / "earlier"), "--no-hooks")  # the kinds are the earlier chart's
    orders.apply()
    orders.client("topic", "create", "tea")
    orders.client("produce", "tea", "Assam", "Darjeeling")
    assert set(orders.consumed("first")) >= {"Assam", "Darjeeling"}

    holder = cluster.admin.get(LEASE)["spec"]["holderIdentity"]
    orders.until(lambda: orders.masters() == [f"orders-b0-{holder[0]}"], "the label names the register's master")
    loses_its_node(orders, "cut")
    upgrading.up_and_back(orders, upgrading.name("broker"), "upgraded")
    is_changed(orders)
    orders.uninstall()


def loses_its_node(orders: Orders, book: str) -> None:
    """The master's node is unplugged, its processes live on; somebody else leads, and the former master comes back."""
    former, epoch = orders.master(), orders.epoch()
    with orders.producer(book, "p", PRODUCER_S) as producer:
        orders.until_producing(book)
        node = next(each for each in orders.cluster.nodes if each.name == orders.node_of(former))
        orders.cluster.network.unplug(node.index)
        try:
            orders.until(lambda: orders.masters() not in ([], [former]), "somebody else leads")
        finally:
            orders.cluster.network.plug(node.index)
        assert orders.epoch() > epoch
        known = len(orders.ledger(book))
        orders.until(lambda: len(orders.ledger(book)) > known, "the new master acknowledges")
        orders.until_in_sync()
        orders.stop_producers()
        producer.wait(120)
    orders.report(book, "second")


def is_changed(orders: Orders) -> None:
    """A change that needs new processes replaces one member at a time, and all run with it."""
    before = orders.uids()
    orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"config": {"pull.count_max": "512"}}}})
    orders.until_rolled(before)
    told = orders.kubectl("exec", "-n", HOME, "orders-b0-0", "--", "cat", "/etc/gantrymq/config/broker.yaml").stdout
    assert "pull.count_max:" in told and "512" in told
