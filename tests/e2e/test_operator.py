"""What a user of Kubernetes does with a cluster, beyond what each commit shows (test_smoke)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.kube.cluster import Cluster
from testkit.kube.orders import Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    found.client("topic", "create", "tea")
    yield found
    found.uninstall()


def test_a_cluster_that_was_deleted_and_applied_again_has_every_message(orders: Orders) -> None:
    orders.client("produce", "tea", "Assam", "Darjeeling", "Keemun")
    before = set(orders.consumed("third"))
    assert len(before) == 3
    orders.delete()
    orders.apply()
    assert set(orders.consumed("fourth")) == before
