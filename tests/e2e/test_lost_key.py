"""The key of a cluster is deleted while no operator lives, on real kubelets: brokers take the new one as they run.

How long that takes is the kubelets' time: it is printed, and bounded by patience alone.
"""

from __future__ import annotations

import time

import pytest

from testkit.kube import faults
from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.orders import BROKERCLUSTER, HOME, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

SECRET = f"/api/v1/namespaces/{HOME}/secrets/orders-ha"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/gantrymq"
PRODUCER_S = 1200  # at most; it is stopped when what it was meant to see is over


def test_a_key_that_is_lost_with_every_operator_is_replaced_and_the_group_fails_over_again(cluster: Cluster) -> None:
    orders, book = Orders(cluster), "rekeyed"
    orders.install()
    orders.apply()
    orders.client("topic", "create", "tea")
    pods, former = orders.uids(), cluster.admin.get(SECRET)["data"]["key"]
    with orders.producer(book, "k", PRODUCER_S) as producer:
        orders.until_producing(book)
        cluster.admin.merge(DEPLOYMENT, {"spec": {"replicas": 0}})
        orders.until(lambda: not cluster.admin.get(DEPLOYMENT).get("status", {}).get("replicas"), "no operator lives")
        cluster.admin.delete(SECRET)
        cluster.admin.merge(DEPLOYMENT, {"spec": {"replicas": 2}})
        start = time.monotonic()
        orders.until(lambda: key(orders) not in ("", former), "another key is made")
        orders.until(lambda: stalled(orders) == "KeyReplaced", "the status tells of it")
        orders.until(lambda: stalled(orders) == "NoError", "every broker has the new key")
        print(
            f"every broker has it {time.monotonic() - start:.1f} s after operators were there again"
        )
        master, epoch = orders.master(), orders.epoch()
        with faults.frozen(master):
            orders.until(lambda: orders.masters() not in ([], [master]), "somebody else leads")
        assert orders.epoch() > epoch
        orders.until_in_sync()
        orders.stop_producers()
        producer.wait(120)
    assert orders.uids() == pods, "no pod had to be replaced"
    orders.report(book, "rekeyed")
    orders.uninstall()


def key(orders: Orders) -> str:
    """What the Secret holds; empty: it is not there."""
    try:
        return str(orders.cluster.admin.get(SECRET)["data"]["key"])
    except RefusedError:
        return ""


def stalled(orders: Orders) -> str:
    """The reason of the condition."""
    conditions = orders.cluster.admin.get(BROKERCLUSTER).get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Stalled"), "")
