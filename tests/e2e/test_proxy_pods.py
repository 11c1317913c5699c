"""Proxies as pods on real kubelets: gRPC clients go on while one of them dies, is replaced, and a master dies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from e2e.test_changes import is_there
from testkit.kube.api import Document
from testkit.kube.cluster import Cluster, condition
from testkit.kube.orders import BROKERCLUSTER, HOME, PODS, Orders
from testkit.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DEPLOYMENT = f"/apis/apps/v1/namespaces/{HOME}/deployments/orders-proxy"
SERVICE = f"/api/v1/namespaces/{HOME}/services/orders-proxy"
SECRET = f"/api/v1/namespaces/{HOME}/secrets/orders-proxy-keys"
ADDRESS, BOOK, TOPIC = f"orders-proxy.{HOME}:8081", "grpc", "shop"
END_S = 120.0
MORE = 50  # messages that show that a producer goes on
SCRIPT = ROOT / "tests" / "testkit" / "grpcledger.py"
IN_POD = ("exec", "-i", "-n", "clients", "client", "--")


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    found.client("topic", "create", TOPIC)
    wants(found, {"replicas": 2})
    found.until(lambda: is_served(found), "two proxies are ready")
    yield found
    found.uninstall()


def wants(orders: Orders, proxy: Document | None) -> None:
    orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"proxy": proxy}})


def is_served(orders: Orders) -> bool:
    return condition(orders.cluster.admin.get(BROKERCLUSTER), "ProxyReady") == "True"


def proxies(orders: Orders) -> list[Document]:
    """Pods that are not on their way out."""
    labels = "gantrymq.io/cluster%3Dorders,gantrymq.io/component%3Dproxy"
    found = orders.cluster.admin.get(f"{PODS}?labelSelector={labels}")["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def sending(orders: Orders) -> subprocess.Popen[bytes]:
    """A producer in the client's pod, until `stop_producers`."""
    words = orders.cluster.kubectl(*IN_POD, "timeout", "900", "python3", "-", ADDRESS, "send", TOPIC, "p", BOOK)
    with SCRIPT.open() as script:
        return subprocess.Popen(words, stdin=script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def goes_on(orders: Orders, what: str) -> None:
    """More messages are acknowledged than now."""
    before = len(orders.ledger(BOOK))
    orders.until(lambda: len(orders.ledger(BOOK)) > before + MORE, f"messages are acknowledged after {what}")


def test_clients_go_on_while_proxies_and_the_master_die_and_are_replaced(orders: Orders) -> None:
    producer = sending(orders)
    orders.until_producing(BOOK)
    for each in proxies(orders):  # whichever of them the producer is connected to
        orders.end_at_once(each["metadata"]["name"])
        goes_on(orders, "the death of a proxy")
        orders.until(lambda: is_served(orders), "there are two again")
    epoch = orders.epoch()
    orders.end_at_once(orders.master())
    orders.until(lambda: orders.epoch() > epoch, "another member leads")
    goes_on(orders, "the death of the master")
    before = {each["metadata"]["uid"] for each in proxies(orders)}
    wants(orders, {"podTemplate": {"annotations": {"again": "yes"}}})

    def is_rolled() -> bool:
        status = orders.cluster.admin.get(DEPLOYMENT).get("status", {})
        assert status.get("readyReplicas", 0) >= 1, "all but one are ready at any time"
        return not before & {each["metadata"]["uid"] for each in proxies(orders)} and is_served(orders)

    orders.until(is_rolled, "the proxies are rolled")
    goes_on(orders, "a rolling update")
    orders.stop_producers()
    producer.wait(END_S)
    acknowledged = set(orders.ledger(BOOK))
    where = ",".join(f"{each['status']['podIP']}:8081" for each in proxies(orders))
    done = orders.kubectl(*IN_POD, "python3", "-", where, "receive", TOPIC, "g", "45", given=SCRIPT.read_text())
    assert done.returncode == 0, done.stderr[-3000:]
    missing = acknowledged - set(done.stdout.split())
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged messages are lost"
    print(f"{len(acknowledged)} acknowledged, received at one proxy and acknowledged at another")


def test_without_the_field_nothing_of_them_is_left(orders: Orders) -> None:
    wants(orders, None)
    orders.until(lambda: not any(is_there(orders, each) for each in (DEPLOYMENT, SERVICE, SECRET)), "they are gone")
    orders.until(lambda: not proxies(orders), "their pods are gone")
    orders.until(orders.is_ready, "the cluster is ready without them")
