"""A topic on real kubelets, which goes with its namespace and its cluster: nobody waits for its finalizer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.orders import SMALL, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

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


def is_there(orders: Orders, path: str) -> bool:
    try:
        return bool(orders.cluster.admin.get(path))
    except RefusedError as error:
        assert error.status == 404
        return False


def test_a_namespace_goes_with_its_cluster_and_its_topics(orders: Orders) -> None:
    api, path = orders.cluster.admin, f"/apis/gantrymq.io/v1alpha1/namespaces/{SHORT}/brokertopics/tea"
    api.apply(TINY)
    orders.until(lambda: orders.is_ready(path), "the topic is there")
    assert api.get(path)["metadata"]["finalizers"]
    api.delete(f"/api/v1/namespaces/{SHORT}")
    orders.until(lambda: not is_there(orders, f"/api/v1/namespaces/{SHORT}"), "the namespace is gone")
