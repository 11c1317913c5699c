"""HTTP queues as pods on real kubelets: clients go on while a server dies, a master dies, and all pods are replaced."""

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

DEPLOYMENT = f"/apis/apps/v1/namespaces/{HOME}/deployments/orders-queues"
SERVICE = f"/api/v1/namespaces/{HOME}/services/orders-queues"
KEYS, USERS = (f"/api/v1/namespaces/{HOME}/secrets/{name}" for name in ("orders-proxy-keys", "callers"))
ADDRESS, QUEUE, SENT, GOT, END = f"orders-queues.{HOME}:9407", "shop", "sent", "got", "end"
APP, LATER = "app:a-secret-of-app", "later:a-secret-of-later"
END_S = 300.0
MORE = 50  # messages that show that clients go on
SCRIPT = ROOT / "tests" / "testkit" / "mnsledger.py"
IN_POD = ("exec", "-i", "-n", "clients", "client", "--")


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    done = found.kubectl("create", "secret", "generic", "callers", "-n", HOME, f"--from-literal=users={line(APP)}")
    assert done.returncode == 0, done.stderr
    yield found
    found.uninstall()


@pytest.fixture
def orders(installed: Orders) -> Orders:
    """Two servers that know the user, and a queue."""
    installed.cluster.admin.merge(USERS, {"stringData": {"users": line(APP)}})
    wants(installed, {"replicas": 2, "users": {"secretName": "callers"}})
    installed.until(lambda: is_served(installed), "two servers are ready")
    words = (*IN_POD, "timeout", "120", "python3", "-", ADDRESS, APP, "create", QUEUE)
    made = installed.kubectl(*words, given=SCRIPT.read_text())
    assert made.returncode == 0, made.stderr
    return installed


def line(user: str) -> str:
    return user.replace(":", " ")


def wants(orders: Orders, queues: Document | None) -> None:
    orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"queues": queues}})


def is_served(orders: Orders) -> bool:
    return condition(orders.cluster.admin.get(BROKERCLUSTER), "QueuesReady") == "True"


def servers(orders: Orders) -> list[Document]:
    """Pods that are not on their way out."""
    labels = "gantrymq.io/cluster%3Dorders,gantrymq.io/component%3Dqueues"
    found = orders.cluster.admin.get(f"{PODS}?labelSelector={labels}")["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def uids(orders: Orders) -> set[str]:
    return {str(each["metadata"]["uid"]) for each in servers(orders)}


def running(orders: Orders, *words: str, bound: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """A client in its pod."""
    command = orders.cluster.kubectl(*IN_POD, *bound, "python3", "-", ADDRESS, APP, *words)
    with SCRIPT.open() as script:
        return subprocess.Popen(command, stdin=script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def answer(orders: Orders, user: str) -> str:
    """The status of one call, empty without an answer."""
    words = (*IN_POD, "python3", "-", ADDRESS, user, "look", QUEUE)
    return orders.kubectl(*words, given=SCRIPT.read_text()).stdout.strip()


def goes_on(orders: Orders, what: str) -> None:
    """More messages are acknowledged, and more are received and deleted, than now."""
    for book, done in ((SENT, "sent"), (GOT, "received")):
        before = len(orders.ledger(book))
        orders.until(lambda: len(orders.ledger(book)) > before + MORE, f"messages are {done} after {what}")  # noqa: B023


def test_clients_go_on_while_servers_and_the_master_die_and_are_replaced(orders: Orders) -> None:
    producer = running(orders, "send", QUEUE, "p", SENT, bound=("timeout", "900"))
    consumer = running(orders, "receive", QUEUE, GOT, END)
    orders.until_producing(SENT)
    for each in servers(orders):  # whichever of them a client is connected to
        orders.end_at_once(each["metadata"]["name"])
        goes_on(orders, "the death of a server")
        orders.until(lambda: is_served(orders), "there are two again")
    epoch = orders.epoch()
    orders.end_at_once(orders.master())
    orders.until(lambda: orders.epoch() > epoch, "another member leads")
    goes_on(orders, "the death of the master")
    before = uids(orders)
    wants(orders, {"podTemplate": {"annotations": {"again": "yes"}}})
    orders.until(lambda: not before & uids(orders) and is_served(orders), "the servers are rolled")
    goes_on(orders, "a rolling update")
    orders.stop_producers()
    producer.wait(END_S)
    orders.kubectl(*IN_POD, "touch", END)
    assert consumer.wait(END_S) == 0, "the queue does not end empty"
    sent, got = set(orders.ledger(SENT)), set(orders.ledger(GOT))
    missing = sent - got
    assert not missing, f"{len(missing)} of {len(sent)} acknowledged messages are lost"
    print(f"{len(sent)} acknowledged, received and deleted over HTTP, the queue is empty")


def test_another_user_is_taken_from_the_secret_without_another_pod(orders: Orders) -> None:
    before = uids(orders)
    assert (answer(orders, APP), answer(orders, LATER)) == ("200", "403")
    orders.cluster.admin.merge(USERS, {"stringData": {"users": f"{line(LATER)}\n"}})
    orders.until(lambda: (answer(orders, APP), answer(orders, LATER)) == ("403", "200"), "the Secret is read again")
    assert uids(orders) == before


def test_without_the_field_nothing_of_them_is_left(orders: Orders) -> None:
    wants(orders, None)
    orders.until(lambda: not any(is_there(orders, each) for each in (DEPLOYMENT, SERVICE, KEYS)), "they are gone")
    orders.until(lambda: not servers(orders), "their pods are gone")
    assert is_there(orders, USERS), "what a person made stays"
    orders.until(orders.is_ready, "the cluster is ready without them")
