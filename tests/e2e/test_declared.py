"""Topics and consumer groups as objects, on real kubelets: applied, kept across a failover, deleted with everything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from testkit.kube.api import Document, RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.orders import CHART, HOME, SMALL, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KINDS = f"/apis/gantrymq.io/v1alpha1/namespaces/{HOME}"
TOPIC, GROUP = f"{KINDS}/brokertopics/order-events", f"{KINDS}/consumergroups/billing"
SHORT = "short-lived"
TINY = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {SHORT}}}
---
apiVersion: gantrymq.io/v1alpha1
kind: BrokerCluster
metadata: {{name: tiny, namespace: {SHORT}}}
spec:
  nameserver: {{replicas: 1}}
  brokers:
    profile: fast
    replicasPerGroup: 1
    storage: {{size: 1Gi, storageClassName: local}}
    config: {json.dumps(SMALL)}
---
apiVersion: gantrymq.io/v1alpha1
kind: BrokerTopic
metadata: {{name: tea, namespace: {SHORT}}}
spec: {{clusterRef: {{name: tiny}}, deletionPolicy: Delete}}
"""


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    yield found
    found.uninstall()


def examples() -> list[Document]:
    """The chart's, which go with their objects."""
    documents: list[Document] = list(yaml.safe_load_all((CHART / "examples" / "topics.yaml").read_text()))
    for each in documents:
        each["metadata"]["namespace"] = HOME
        each["spec"]["deletionPolicy"] = "Delete"
    return documents


def queues(orders: Orders) -> list[tuple[int, int]]:
    """Of order_events, by group, as a client is told."""
    rows = json.loads(orders.client("topic", "list", "--output", "json"))
    return [(row["write_queues"], row["read_queues"]) for row in rows if row["topic"] == "order_events"]


def is_there(orders: Orders, path: str) -> bool:
    try:
        return bool(orders.cluster.admin.get(path))
    except RefusedError as error:
        assert error.status == 404
        return False


def test_what_is_declared_is_there_outlives_its_master_and_goes_with_its_object(orders: Orders) -> None:
    api = orders.cluster.admin
    api.apply(yaml.safe_dump_all(examples()))
    for path in TOPIC, GROUP:
        orders.until(lambda: orders.is_ready(path), f"{path} is ready")  # noqa: B023
    assert queues(orders) == [(8, 8)]
    orders.client("produce", "order_events", "one", "two")
    assert set(orders.consumed("GID_billing", "order_events")) == {"one", "two"}

    former = orders.master()
    node = next(each for each in orders.cluster.nodes if each.name == orders.node_of(former))
    orders.cluster.network.unplug(node.index)
    try:
        orders.until(lambda: orders.masters() not in ([], [former]), "somebody else leads")
        for path in TOPIC, GROUP:
            orders.until(lambda: epochs(api.get(path)) == [orders.epoch()], "the new master was asked")  # noqa: B023
            orders.until(lambda: orders.is_ready(path), f"{path} is ready")  # noqa: B023
    finally:
        orders.cluster.network.plug(node.index)
    orders.until_in_sync()
    orders.until(lambda: queues(orders) == [(8, 8)], "clients are told of the same queues")
    orders.client("produce", "order_events", "three")
    assert "three" in orders.consumed("GID_billing", "order_events")

    for path in TOPIC, GROUP:
        api.delete(path)
    for path in TOPIC, GROUP:
        orders.until(lambda: not is_there(orders, path), f"{path} is gone")  # noqa: B023
    assert queues(orders) == []
    assert "GID_billing" not in orders.client("group", "list", "--output", "json")


def epochs(found: Document) -> list[int]:
    """Of the masters that were asked."""
    return [each["epoch"] for each in found.get("status", {}).get("placements", [])]


def test_a_namespace_goes_with_its_cluster_and_its_topics(orders: Orders) -> None:
    api, path = orders.cluster.admin, f"/apis/gantrymq.io/v1alpha1/namespaces/{SHORT}/brokertopics/tea"
    api.apply(TINY)
    orders.until(lambda: orders.is_ready(path), "the topic is there")
    assert api.get(path)["metadata"]["finalizers"]
    api.delete(f"/api/v1/namespaces/{SHORT}")
    orders.until(lambda: not is_there(orders, f"/api/v1/namespaces/{SHORT}"), "the namespace is gone")
