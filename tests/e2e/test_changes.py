"""A BrokerCluster that changes, on real kubelets: every field, every annotation, its end, and what goes wrong with it.

Messages are produced all the while where a change touches members, and everything acknowledged is there in the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import yaml

from testkit.kube import faults
from testkit.kube.api import Document, RefusedError
from testkit.kube.cluster import Cluster, condition
from testkit.kube.effects import EFFECTS, found, wanted
from testkit.kube.orders import BROKERCLUSTER, HOME, LEASE, PODS, SMALL, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

KIND = "/apis/gantrymq.io/v1alpha1/namespaces/{}/brokerclusters"
CLAIMS = f"/api/v1/namespaces/{HOME}/persistentvolumeclaims"
POLICY = f"/apis/networking.k8s.io/v1/namespaces/{HOME}/networkpolicies/orders-broker"
RUNNING = """
import asyncio, json, os
from gantry.broker.role.membership import read_keys
from gantry.clock import SystemClock
from gantry.failover.asking import AskedMembers

async def main():
    group, ordinal = os.environ["POD_NAME"].rsplit("-", 1)
    keys = read_keys("/etc/gantrymq/secret/key")
    asked = AskedMembers("", group, lambda _: "127.0.0.1:9405", keys, SystemClock(), 20.0)
    print(json.dumps(await asked.config(int(ordinal))))
    await asked.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    made = Orders(cluster)
    made.install()
    made.apply()
    made.client("topic", "create", "tea")
    yield made
    made.uninstall()


def change(orders: Orders, path: str = BROKERCLUSTER, **spec: object) -> None:
    """Until the change is rolled out and nothing is left to do."""
    generation = orders.cluster.admin.merge(path, {"spec": spec})["metadata"]["generation"]
    orders.until(lambda: is_settled(orders, path, generation), f"{spec} is rolled out")


def is_settled(orders: Orders, path: str, generation: int = 0) -> bool:
    """Whether the plan of this generation is empty."""
    try:
        status = orders.cluster.admin.get(path).get("status", {})
    except RefusedError:
        return False
    told = {each["type"]: each for each in status.get("conditions", [])}
    if status.get("observedGeneration", -1) < generation or "Ready" not in told:
        return False
    wished = {"Ready": "True", "Reconciling": "False", "InSync": "True", "ConfigApplied": "True"}
    return all(told[kind]["status"] == value for kind, value in wished.items())


def running(orders: Orders, pod: str) -> Document:
    """What a broker says that it runs with."""
    done = orders.kubectl("exec", "-i", "-n", HOME, pod, "--", "python3", "-", given=RUNNING)
    assert done.returncode == 0, done.stderr
    told: Document = json.loads(done.stdout)
    return told


def said(orders: Orders, kind: str, path: str = BROKERCLUSTER) -> str:
    """The message of a condition."""
    conditions = orders.cluster.admin.get(path).get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == kind), "")


def annotate(orders: Orders, path: str, **annotations: str | None) -> None:
    wished = {f"gantrymq.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    orders.cluster.admin.merge(path, {"metadata": {"annotations": wished}})


def outcome(orders: Orders, request: str) -> str:
    """What became of an annotation."""
    told = orders.cluster.admin.get(BROKERCLUSTER).get("status", {}).get("requests", [])
    return next((str(each["outcome"]) for each in told if each["name"] == f"gantrymq.io/{request}"), "")


def events(orders: Orders) -> set[str]:
    """The reasons of what was told about the cluster."""
    items = orders.cluster.admin.get(f"/api/v1/namespaces/{HOME}/events")["items"]
    return {str(each["reason"]) for each in items if each["involvedObject"]["name"] == "orders"}


@pytest.mark.parametrize(
    ("brokers", "flush", "role", "least"),
    [
        ({"profile": "replicated"}, "ASYNC_FLUSH", "SYNC_MASTER", 2),
        ({"profile": "fast", "flush": {"mode": "SYNC"}}, "SYNC_FLUSH", "ASYNC_MASTER", 1),
        ({"profile": "durable", "flush": None}, "SYNC_FLUSH", "SYNC_MASTER", 2),
    ],
    ids=["replicated", "fast-sync", "durable"],
)
def test_a_promise_that_changes_is_kept_by_every_member(
    orders: Orders, brokers: Document, flush: str, role: str, least: int
) -> None:
    change(orders, brokers=brokers)
    for ordinal in range(3):
        told = running(orders, f"orders-b0-{ordinal}")
        assert (told["store.flush"], told["replication.min_in_sync"]) == (flush, least)
    status = orders.cluster.admin.get(BROKERCLUSTER)["status"]
    assert (status["mode"], status["flush"]) == (role, flush)
    assert running(orders, orders.master())["role"] == role


def test_members_come_and_go_under_a_ledger(orders: Orders) -> None:
    book = "members"
    with orders.producer(book, "m", 240) as producer:
        orders.until_producing(book)
        start = time.monotonic()
        change(orders, brokers={"replicasPerGroup": 4})
        assert orders.in_sync() == [0, 1, 2, 3]
        print(f"a fourth member was in sync {time.monotonic() - start:.1f} s after it was asked for")
        annotate(orders, BROKERCLUSTER, force_failover=f"b0/3@{orders.epoch()}")
        orders.until(lambda: orders.masters() == ["orders-b0-3"], "the last member leads")
        orders.until(lambda: outcome(orders, "force-failover").startswith("done"), "that is told")
        orders.until(lambda: len(orders.in_sync()) == 4, "all four are in sync")
        start = time.monotonic()
        change(orders, brokers={"replicasPerGroup": 3})
        orders.until(lambda: orders.in_sync() == [0, 1, 2], "the last member is in no set any more")
        assert len(orders.members()) == 3 and orders.master() != "orders-b0-3"
        print(f"it was gone {time.monotonic() - start:.1f} s after that was asked for, and it led before")
        producer.wait(300)
    orders.report(book, "members")
    assert {"store-orders-b0-3"} <= {each["metadata"]["name"] for each in orders.cluster.admin.get(CLAIMS)["items"]}
    assert {"Resized", "HandedOver"} <= events(orders)


def test_a_pause_changes_nothing_while_failover_goes_on(orders: Orders) -> None:
    annotate(orders, BROKERCLUSTER, pause_reconciliation="true")
    before, former = orders.uids(), orders.master()
    orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"config": {"pull.count_max": "300"}}}})
    orders.until(lambda: condition(orders.cluster.admin.get(BROKERCLUSTER), "Paused") == "True", "it is paused")
    orders.cluster.admin.delete(f"{PODS}/{former}")
    orders.until(lambda: orders.masters() not in ([], [former]), "somebody else leads")
    assert len(before & orders.uids()) >= 2
    annotate(orders, BROKERCLUSTER, pause_reconciliation=None)
    orders.until(lambda: not before & orders.uids(), "all are replaced")
    orders.until(lambda: is_settled(orders, BROKERCLUSTER), "nothing is left to do")
    assert running(orders, "orders-b0-0")["pull.count_max"] == 300


def test_a_rolling_update_by_hand_happens_once(orders: Orders) -> None:
    before = orders.uids()
    annotate(orders, BROKERCLUSTER, manual_rolling_update="monday")
    orders.until(lambda: not before & orders.uids(), "all are replaced")
    orders.until(lambda: outcome(orders, "manual-rolling-update") == "done", "that is told")
    once = orders.uids()
    orders.until(lambda: is_settled(orders, BROKERCLUSTER), "nothing is left to do")
    assert orders.uids() == once


def test_a_key_that_a_broker_takes_while_it_runs_reaches_it_without_a_new_pod(orders: Orders) -> None:
    before = orders.uids()
    change(orders, brokers={"config": {"messages.body_bytes_max": "1MiB"}})
    orders.until(lambda: running(orders, orders.master())["messages.body_bytes_max"] == 1 << 20, "the master has it")
    assert orders.uids() == before and "Configured" in events(orders)


def test_a_member_is_copied_again_only_when_nobody_counts_on_it(orders: Orders) -> None:
    orders.until_in_sync()
    slave = next(f"orders-b0-{each}" for each in range(3) if f"orders-b0-{each}" != orders.master())
    uid = orders.cluster.admin.get(f"{PODS}/{slave}")["metadata"]["uid"]
    annotate(orders, f"{PODS}/{slave}", reclone=uid)
    orders.until(lambda: "RecloneRefused" in events(orders), "that is refused")
    assert "gantrymq.io/reclone" not in orders.cluster.admin.get(f"{PODS}/{slave}")["metadata"].get("annotations", {})


def test_a_member_that_nobody_counts_on_is_copied_again_as_another_disk(orders: Orders) -> None:
    """Its way to the master is cut until the set is without it; the operator that leads still reaches it."""
    orders.until_in_sync()
    master = orders.master()
    nodes = {each.name: each.index for each in orders.cluster.nodes}
    while (holder := faults.leader(orders)) and faults.operators_node(orders, holder) == orders.node_of(master):
        orders.cluster.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{holder}")
        orders.until(lambda: faults.leader(orders) not in ("", holder), "another operator leads")
    slave = next(each for each in range(3) if f"orders-b0-{each}" != master)
    name = f"orders-b0-{slave}"
    here, there = nodes[orders.node_of(name)], nodes[orders.node_of(master)]
    former = disks(orders)
    orders.move_client()
    orders.cluster.network.cut(here, there)
    try:
        orders.client("produce", "tea", "Keemun")
        orders.until(lambda: slave not in orders.in_sync(), "the set is without it")
        uid = orders.cluster.admin.get(f"{PODS}/{name}")["metadata"]["uid"]
        annotate(orders, f"{PODS}/{name}", reclone=uid)
        orders.until(lambda: "Recloned" in events(orders), "it is told to throw its log away")
    finally:
        orders.cluster.network.join(here, there)
    orders.until_in_sync()
    assert disks(orders)[slave] != former[slave]
    assert all(disks(orders)[each] == former[each] for each in range(3) if each != slave)
    annotate(orders, BROKERCLUSTER, force_failover=f"b0/{slave}@{orders.epoch()}")
    orders.until(lambda: orders.masters() == [name], "it leads")
    assert "Keemun" in orders.consumed("recloned")
    orders.until_in_sync()


def disks(orders: Orders) -> dict[int, str]:
    """Which disk stands under each ordinal, as the register has it."""
    rows = orders.cluster.admin.get(LEASE)["metadata"]["annotations"]["gantrymq.io/stores"].split(",")
    return {int(ordinal): disk for ordinal, _, disk in (row.partition("=") for row in rows)}


def test_a_running_cluster_changes_in_every_field(orders: Orders) -> None:
    """Of pods, name servers and policies; what brokers run with is read back one field at a time by unit/operator."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "regcred", "namespace": HOME}}
    orders.cluster.admin.apply(yaml.safe_dump(secret))
    rows = {path: each for path, each in EFFECTS.items() if each.pod or each.name_server or each.guard}
    change(orders, **wanted(rows))
    orders.until(lambda: all(is_shown(orders, path) for path in rows), "every field is shown by what runs")
    generation = orders.cluster.admin.get(BROKERCLUSTER)["metadata"]["generation"]
    orders.until(lambda: is_settled(orders, BROKERCLUSTER, generation), "nothing is left to do")


def is_shown(orders: Orders, path: str) -> bool:
    effect = EFFECTS[path]
    ours = "gantrymq.io/cluster%3Dorders,gantrymq.io/component%3Dnameserver"
    names = orders.cluster.admin.get(f"{PODS}?labelSelector={ours}")["items"]
    where, what = (orders.members(), effect.pod) if effect.pod else (names, effect.name_server)
    if effect.guard:
        where, what = [orders.cluster.admin.get(POLICY)], effect.guard
    assert what is not None
    try:
        return bool(where) and all(found(each, what[0]) == what[1] for each in where)
    except (KeyError, IndexError):
        return False


def small(name: str, namespace: str = HOME, **spec: object) -> str:
    """A cluster of one member, as YAML."""
    brokers: Document = {
        "replicasPerGroup": 1, "profile": "fast", "config": SMALL,
        "storage": {"size": "1Gi", "storageClassName": "local"},
    }  # fmt: skip
    spec = {"nameserver": {"replicas": 1}, "brokers": brokers} | spec
    about = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster"}
    return yaml.safe_dump(kind | {"metadata": about, "spec": spec})


def namespace(orders: Orders, name: str, **labels: str) -> None:
    about = {"name": name, "labels": labels}
    orders.cluster.admin.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": about}))


def test_clusters_side_by_side_do_not_meet(orders: Orders) -> None:
    """Two in one namespace, one of the same name in another; each keeps its messages to itself."""
    namespace(orders, "second")
    for name, space in (("tea", HOME), ("orders", "second")):
        orders.cluster.admin.apply(small(name, space))
        path = f"{KIND.format(space)}/{name}"
        orders.until(lambda: is_settled(orders, path), f"{space}/{name} is ready")  # noqa: B023
        words = ("exec", "-n", "clients", "client", "--", "gantry", "topic", "list", "--namesrv")
        told = orders.kubectl(*words, f"{name}-nameserver.{space}:9876")
        assert told.returncode == 0 and "tea" not in told.stdout.split(), told.stdout + told.stderr
    assert is_settled(orders, BROKERCLUSTER)
    orders.cluster.admin.delete(f"{KIND.format(HOME)}/tea")
    orders.cluster.admin.delete("/api/v1/namespaces/second")


def test_a_cluster_runs_with_any_user_id_where_pods_are_restricted(orders: Orders) -> None:
    """As on OpenShift: an id that no image knows, and group 0."""
    space, identity = "strict", {"runAsUser": 1000650000, "runAsGroup": 0, "fsGroup": 1000650000}
    namespace(orders, space, **{"pod-security.kubernetes.io/enforce": "restricted"})
    pods = {"podTemplate": {"securityContext": identity}}
    wished = yaml.safe_load(small("orders", space))
    wished["spec"]["brokers"] |= pods
    wished["spec"]["nameserver"] |= pods
    orders.cluster.admin.apply(yaml.safe_dump(wished))
    orders.until(lambda: is_settled(orders, f"{KIND.format(space)}/orders"), "it is ready")
    for pod in ("orders-b0-0", "orders-ns-0"):
        told = orders.kubectl("exec", "-n", space, pod, "--", "sh", "-c", "echo $(id -u) $(id -g)")
        assert told.stdout.split() == ["1000650000", "0"], told.stdout + told.stderr
    orders.cluster.admin.delete(f"/api/v1/namespaces/{space}")


def test_a_cluster_grows_by_a_group_as_anything_is_scaled(orders: Orders) -> None:
    path = f"{KIND.format(HOME)}/wide"
    orders.cluster.admin.apply(small("wide"))
    orders.until(lambda: is_settled(orders, path), "it is ready")
    done = orders.kubectl("scale", "-n", HOME, "brokercluster/wide", "--replicas=2")
    assert done.returncode == 0, done.stderr
    orders.until(lambda: is_settled(orders, path, 2), "its second group is ready")
    status = orders.cluster.admin.get(path)["status"]
    assert (status["summary"]["masters"], status["groupCount"]) == ("2/2", 2)
    told = orders.kubectl("exec", "-n", HOME, "wide-b1-0", "--", "cat", "/etc/gantrymq/config/broker.yaml").stdout
    assert "name: wide-b1" in told
    words = ("topic", "create", "leaves", "--namesrv", f"wide-nameserver.{HOME}:9876")  # `wide` is the cluster's own
    done = orders.kubectl("exec", "-n", "clients", "client", "--", "gantry", *words)
    assert done.returncode == 0, done.stderr
    orders.cluster.admin.delete(path)


def test_an_image_that_cannot_be_pulled_is_named_and_hurts_nobody_else(orders: Orders) -> None:
    orders.cluster.admin.apply(small("unknown", image="registry.invalid/nothing:1"))
    orders.cluster.admin.apply(small("homeless", brokers={
        "replicasPerGroup": 1, "profile": "fast", "storage": {"size": "1Gi", "storageClassName": "nowhere"},
    }))  # fmt: skip
    orders.cluster.admin.apply(small("keyless", imagePullSecrets=["nobody"]))
    for name, field in (
        ("unknown", "spec.image: registry.invalid/nothing:1 cannot be pulled"),
        ("homeless", "spec.brokers.storage.storageClassName: nowhere gives"),
        ("keyless", "spec.imagePullSecrets: there is no Secret nobody"),
    ):
        path = f"{KIND.format(HOME)}/{name}"
        orders.until(lambda: field in said(orders, "Stalled", path), field)  # noqa: B023
    orders.cluster.admin.merge(f"{KIND.format(HOME)}/unknown", {"spec": {"image": ""}})
    orders.until(lambda: is_settled(orders, f"{KIND.format(HOME)}/unknown"), "another image is enough")
    assert is_settled(orders, BROKERCLUSTER)
    for name in ("unknown", "homeless", "keyless"):
        orders.cluster.admin.delete(f"{KIND.format(HOME)}/{name}")


def test_two_members_are_enough_for_who_accepts_a_pause(orders: Orders) -> None:
    brokers: Document = {
        "replicasPerGroup": 2, "profile": "durable", "replication": {"allowWritePause": True}, "config": SMALL,
        "storage": {"size": "1Gi", "storageClassName": "local", "accessMode": "ReadWriteOncePod"},
    }  # fmt: skip
    path = f"{KIND.format(HOME)}/pair"
    orders.cluster.admin.apply(small("pair", brokers=brokers))
    orders.until(lambda: is_settled(orders, path), "two members are in sync")
    claim = orders.cluster.admin.get(f"{CLAIMS}/store-pair-b0-1")
    for each in EFFECTS.values():
        if each.claim:
            assert found(claim, each.claim[0]) == each.claim[1]
    orders.cluster.admin.delete(path)


def test_a_cluster_whose_volumes_go_with_it_leaves_nothing(orders: Orders) -> None:
    path = f"{KIND.format(HOME)}/brief"
    orders.cluster.admin.apply(small("brief", deletionPolicy="Delete"))
    orders.until(lambda: is_settled(orders, path), "it is ready")
    orders.cluster.admin.delete(path)

    def left() -> list[str]:
        paths = [path, f"{CLAIMS}/store-brief-b0-0", LEASE.replace("orders-b0", "brief-b0"), f"{PODS}/brief-b0-0"]
        return [each for each in paths if is_there(orders, each)]

    orders.until(lambda: not left(), "nothing is left")


def is_there(orders: Orders, path: str) -> bool:
    try:
        return bool(orders.cluster.admin.get(path))
    except RefusedError:
        return False


@pytest.mark.parametrize("replicas", [2, 0], ids=["operator-up", "operator-down"])
def test_a_namespace_is_deleted_within_bounds(orders: Orders, replicas: int) -> None:
    space = f"gone-{replicas}"
    namespace(orders, space)
    orders.cluster.admin.apply(small("brief", space))
    orders.until(lambda: is_settled(orders, f"{KIND.format(space)}/brief"), "it is ready")
    deployment = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/gantrymq"
    orders.cluster.admin.merge(deployment, {"spec": {"replicas": replicas}})
    start = time.monotonic()
    orders.cluster.admin.delete(f"/api/v1/namespaces/{space}")
    orders.until(lambda: not is_there(orders, f"/api/v1/namespaces/{space}"), "the namespace is gone")
    print(f"gone after {time.monotonic() - start:.1f} s with {replicas} operators")
    orders.cluster.admin.merge(deployment, {"spec": {"replicas": 2}})
