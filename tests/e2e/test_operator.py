"""The whole way: the chart is installed, a BrokerCluster applied, messages go through, its master dies, none is lost.

On real kubelets, with the images that the Dockerfile builds.  Clients are pods of another namespace.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testkit.kube import projectimages
from testkit.kube.api import Document, RefusedError
from testkit.kube.cluster import Cluster, condition
from testkit.pairplay import until
from testkit.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CHART = ROOT / "charts" / "gantrymq"
HOME, SYSTEM = "messaging", "gantrymq-system"
BROKERCLUSTER = f"/apis/gantrymq.io/v1alpha1/namespaces/{HOME}/brokerclusters/orders"
PODS = f"/api/v1/namespaces/{HOME}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/orders-b0"
NAMES = f"orders-nameserver.{HOME}:9876"
CLIENT = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {HOME}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: clients}}
---
apiVersion: v1
kind: Pod
metadata: {{name: client, namespace: clients}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: client
      image: {projectimages.name("broker")}
      command: [python3, -c, "import signal; signal.pause()"]
      volumeMounts: [{{name: scratch, mountPath: /tmp}}]
  volumes: [{{name: scratch, emptyDir: {{}}}}]
"""
ROW = 4  # fields of a line of a ledger
# Files of the usual sizes would fill the machine's disk three times over.
SMALL = {"store.segment_bytes": "16MiB", "store.index_slots": "10000", "store.index_entries": "40000"}


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    cluster.load([projectimages.tar(target) for target in projectimages.TARGETS])
    images = [
        "--set", f"operator.image={projectimages.name('operator')}",
        "--set", f"operator.brokerImage={projectimages.name('broker')}",
    ]  # fmt: skip
    cluster.helm("install", "gantrymq", str(CHART), "--namespace", SYSTEM, "--create-namespace", *images)
    cluster.admin.apply(CLIENT)
    until(lambda: is_ready(cluster, "/api/v1/namespaces/clients/pods/client"), "the client is ready")
    yield cluster
    cluster.helm("uninstall", "gantrymq", "--namespace", SYSTEM)


@pytest.fixture(scope="module")
def orders(installed: Cluster) -> Cluster:
    apply(installed)
    client(installed, "topic", "create", "tea")
    return installed


def example() -> Document:
    document: Document = yaml.safe_load((CHART / "examples" / "orders.yaml").read_text())
    document["metadata"]["namespace"] = HOME
    brokers = document["spec"]["brokers"]
    brokers["config"] = SMALL
    brokers["storage"] = {"size": "1Gi", "storageClassName": "local"}
    brokers["failover"] = {"timers": "fast"}
    return document


def apply(cluster: Cluster) -> None:
    start = time.monotonic()
    cluster.admin.apply(yaml.safe_dump(example()))
    try:
        until(lambda: is_ready(cluster, BROKERCLUSTER), "the cluster is ready")
        until(lambda: len(in_sync(cluster)) == 3, "all members are in sync")
    except AssertionError:
        print(trouble(cluster))
        raise
    print(f"ready, and all in sync, {time.monotonic() - start:.1f} s after it was applied")


def is_ready(cluster: Cluster, path: str) -> bool:
    try:
        return condition(cluster.admin.get(path), "Ready") == "True"
    except RefusedError:
        return False


def in_sync(cluster: Cluster) -> list[int]:
    groups = cluster.admin.get(BROKERCLUSTER).get("status", {}).get("groups", [])
    return list(groups[0].get("syncSet", [])) if groups else []


def masters(cluster: Cluster) -> list[str]:
    found = cluster.admin.get(f"{PODS}?labelSelector=gantrymq.io/role%3Dmaster")["items"]
    return [each["metadata"]["name"] for each in found]


def kubectl(cluster: Cluster, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        cluster.kubectl(*arguments), input=given, capture_output=True, text=True, timeout=300, check=False
    )


def client(cluster: Cluster, *arguments: str) -> str:
    """`gantry` in the client's pod."""
    words = ("exec", "-n", "clients", "client", "--", "gantry", *arguments, "--namesrv", NAMES)
    done = kubectl(cluster, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trouble(cluster: Cluster) -> str:
    """What a person would look at."""
    asked = [
        ("get", "pods", "-A", "-o", "wide"),
        ("get", "events", "-n", HOME, "--sort-by=.lastTimestamp"),
        ("get", "leases,bc", "-n", HOME, "-o", "yaml"),
        ("logs", "-n", SYSTEM, "-l", "app.kubernetes.io/name=gantrymq", "--tail=60", "--prefix"),
        ("logs", "-n", SYSTEM, "deployment/gantrymq", "--tail=60", "--previous"),
        *(("logs", "-n", HOME, f"orders-b0-{ordinal}", "--tail=30") for ordinal in range(3)),
    ]
    return "\n".join(kubectl(cluster, *each).stdout for each in asked)


def consumed(cluster: Cluster, group: str) -> list[str]:
    rows = client(cluster, "consume", "tea", "--group", group, "--idle", "8", "--output", "json").splitlines()
    return [str(yaml.safe_load(row)["body"]) for row in rows]


def test_what_is_produced_is_consumed(orders: Cluster) -> None:
    client(orders, "produce", "tea", "Assam", "Darjeeling")
    assert set(consumed(orders, "first")) >= {"Assam", "Darjeeling"}


def test_one_pod_of_a_group_is_labelled_as_the_master_that_the_register_names(orders: Cluster) -> None:
    holder = orders.admin.get(LEASE)["spec"]["holderIdentity"]
    until(lambda: masters(orders) == [f"orders-b0-{holder[0]}"], "the label names the master")


def test_a_master_whose_node_is_cut_off_is_followed_and_nothing_acknowledged_is_lost(orders: Cluster) -> None:
    until(lambda: len(masters(orders)) == 1, "there is a master")
    former = masters(orders)[0]
    book = "/tmp/ledger"
    with producing_to(orders, book, "p", 45) as producer:
        until(lambda: len(ledger(orders, book)) > 50, "messages are acknowledged")
        epoch = orders.admin.get(LEASE)["spec"]["leaseTransitions"]
        node = next(each for each in orders.nodes if each.name == node_of(orders, former))
        orders.network.unplug(node.index)
        try:
            until(lambda: masters(orders) not in ([], [former]), "somebody else leads")
        except AssertionError:
            print(trouble(orders))
            raise
        finally:
            orders.network.plug(node.index)
        producer.wait(120)
    assert orders.admin.get(LEASE)["spec"]["leaseTransitions"] > epoch
    report(orders, ledger(orders, book), "second")
    until(lambda: len(in_sync(orders)) == 3, "the former master is back")


def test_a_change_is_rolled_out_without_losing_anything(orders: Cluster) -> None:
    until(lambda: len(in_sync(orders)) == 3, "all members are in sync")
    before = {each["metadata"]["uid"] for each in members(orders)}
    book = "/tmp/rolled"
    with producing_to(orders, book, "r", 90) as producer:
        until(lambda: len(ledger(orders, book)) > 50, "messages are acknowledged")
        start = time.monotonic()
        orders.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"config": {"messages.body_bytes_max": "1MiB"}}}})
        until_rolled(orders, before)
        print(f"three members replaced in {time.monotonic() - start:.1f} s")
        producer.wait(200)
    report(orders, ledger(orders, book), "rolled")
    told = kubectl(orders, "exec", "-n", HOME, "orders-b0-0", "--", "cat", "/etc/gantrymq/config/broker.yaml").stdout
    assert "messages.body_bytes_max: 1MiB" in told


def until_rolled(cluster: Cluster, before: set[str]) -> None:
    """Nobody of `before` is left; more patience than for one step."""
    try:
        for left in (2, 1, 0):
            until(lambda: len(before & uids(cluster)) <= left, f"{left} are left")  # noqa: B023
        until(lambda: len(in_sync(cluster)) == 3 and is_ready(cluster, BROKERCLUSTER), "all are in sync again")
    except AssertionError:
        print(trouble(cluster))
        raise


def members(cluster: Cluster) -> list[Document]:
    labels = "gantrymq.io/cluster%3Dorders,gantrymq.io/component%3Dbroker"
    return list(cluster.admin.get(f"{PODS}?labelSelector={labels}")["items"])


def uids(cluster: Cluster) -> set[str]:
    return {str(each["metadata"]["uid"]) for each in members(cluster)}


def producing_to(cluster: Cluster, book: str, prefix: str, seconds: int) -> subprocess.Popen[str]:
    """A producer in the client's pod, for so long; its ledger is a file there."""
    script = (Path(__file__).parents[1] / "testkit" / "ledgerproducer.py").read_text()
    bounded = ("timeout", str(seconds), "python3", "-", NAMES, "tea", prefix, book)
    words = cluster.kubectl("exec", "-i", "-n", "clients", "client", "--", *bounded)
    producer = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    assert producer.stdin is not None
    producer.stdin.write(script)
    producer.stdin.close()
    return producer


def report(cluster: Cluster, rows: dict[str, int], group: str) -> None:
    """Print the longest pause; everything acknowledged must be there."""
    times = sorted(rows.values())
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    print(f"{len(rows)} acknowledged, longest pause {max(pauses) / 1000:.1f} s")
    missing = set(rows) - set(consumed(cluster, group))
    assert not missing, f"{len(missing)} of {len(rows)} acknowledged messages are lost"


def ledger(cluster: Cluster, book: str) -> dict[str, int]:
    """body -> milliseconds."""
    said = kubectl(cluster, "exec", "-n", "clients", "client", "--", "cat", book).stdout.split()
    rows = [row.split(",") for row in said]
    return {row[0]: int(row[1]) for row in rows if len(row) == ROW}  # the last one may still be in the making


def node_of(cluster: Cluster, pod: str) -> str:
    return str(cluster.admin.get(f"{PODS}/{pod}")["spec"]["nodeName"])


def test_a_cluster_that_was_deleted_and_applied_again_has_every_message(orders: Cluster) -> None:
    before = set(consumed(orders, "third"))
    orders.admin.delete(BROKERCLUSTER)
    ours = f"{PODS}?labelSelector=gantrymq.io/cluster%3Dorders"
    until(lambda: not orders.admin.get(ours)["items"], "all pods are gone")
    apply(orders)
    assert set(consumed(orders, "fourth")) == before
