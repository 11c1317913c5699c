"""A master that is lost, on real kubelets: killed and kept down, frozen, cut off with its processes alive.

How long it takes is printed and not asserted: p50 and the longest of GANTRY_FAILOVER_ROUNDS rounds, from the fault to
the first message that somebody else acknowledges, as a producer in another namespace sees it.  What was acknowledged
is there in the end, whatever happened.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from testkit.kube import audit, faults, projectimages
from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.node import Node
from testkit.kube.orders import BROKERCLUSTER, HOME, MEMBERS, NAMES, PODS, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3500)]

ROUNDS = int(os.environ.get("GANTRY_FAILOVER_ROUNDS", "3"))
ROUND_S_MAX = 120
PAUSE_MS = 50.0
PAUSE_MS_MIN = 500  # what is called a pause, after a master was lost


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    found.move_client()
    found.client("topic", "create", "tea")
    yield found
    found.uninstall()


def node_of(orders: Orders, pod: str) -> Node:
    return next(each for each in orders.cluster.nodes if each.name == orders.node_of(pod))


@contextmanager
def unplugged(orders: Orders, pod: str) -> Iterator[None]:
    """The pod's node is out of reach, and everything on it lives on."""
    index = node_of(orders, pod).index
    orders.cluster.network.unplug(index)
    try:
        yield
    finally:
        orders.cluster.network.plug(index)


def test_a_master_that_stands_still_is_followed_and_comes_back_as_a_slave(orders: Orders) -> None:
    book, former, epoch = "frozen", orders.master(), orders.epoch()
    with orders.producer(book, "f", 60) as producer:
        orders.until_producing(book)
        with faults.frozen(former):
            orders.until(lambda: orders.masters() not in ([], [former]), "somebody else leads")
        producer.wait(200)
    assert orders.epoch() > epoch
    orders.until_in_sync()
    orders.report(book, "frozen")


def beside(orders: Orders, node: str) -> str:
    """A pod on that node with a producer; the file of its ledger."""
    script = (Path(__file__).parents[1] / "testkit" / "ledgerproducer.py").read_text()
    container = {
        "name": "client", "image": projectimages.name("broker"),
        "command": ["python3", "-c", script, NAMES, "tea", "alone", "alone", str(PAUSE_MS)],
        "workingDir": "/tmp",
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }  # fmt: skip
    spec = {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }  # fmt: skip
    about = {"name": "alone", "namespace": "clients", "labels": {"gantrymq.io/client": "yes"}}
    orders.cluster.admin.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}))
    orders.until(lambda: len(orders.ledger("alone", "alone")) > 50, "the producer beside the master sends")
    return "alone"


def test_a_master_that_is_cut_off_with_its_clients_cuts_its_log_when_it_is_back(orders: Orders) -> None:
    """What it stored for a producer beside it was acknowledged to nobody; no pod is deleted by force for all that."""
    orders.until_in_sync()
    book, former, epoch = "cut", orders.master(), orders.epoch()
    before = len(audit.writes(orders.cluster.folder))
    cuts = said(orders, former).count("the log was cut")
    lonely = beside(orders, orders.node_of(former))
    with orders.producer(book, "c", 90) as producer:
        orders.until_producing(book)
        with unplugged(orders, former):
            orders.until(lambda: orders.masters() not in ([], [former]), "somebody else leads")
        orders.until_in_sync()
        producer.wait(200)
    assert orders.epoch() > epoch
    assert said(orders, former).count("the log was cut") > cuts
    told = set(orders.ledger(lonely, "alone"))
    orders.cluster.admin.delete("/api/v1/namespaces/clients/pods/alone")
    orders.report(book, "cut")
    assert not told - set(orders.consumed("alone"))
    deleted = [
        each for each in audit.writes(orders.cluster.folder)[before:]
        if (each.verb, each.resource, each.namespace) == ("delete", "pods", HOME)
    ]  # fmt: skip
    print(f"deletions of pods meanwhile: {[(each.user, each.name, each.grace_s) for each in deleted]}")
    assert not [each for each in deleted if each.grace_s == 0 and not each.user.startswith("system:node:")]


def said(orders: Orders, pod: str) -> str:
    """Its log so far."""
    return orders.kubectl("logs", "-n", HOME, pod, "--tail=-1").stdout


def killed(orders: Orders, pod: str) -> AbstractContextManager[None]:
    del orders
    return faults.kept_down(pod)


class Kind(NamedTuple):
    """What happens, and whether the operator that leads is on the master's node."""

    fault: Callable[[Orders, str], AbstractContextManager[None]]
    leader_too: bool = False


KINDS = {"killed": Kind(killed), "node-gone": Kind(unplugged), "node-and-operator-gone": Kind(unplugged, True)}


@pytest.mark.parametrize(
    ("name", "timers"),
    [("killed", "fast"), ("killed", "default"), ("node-gone", "default"), ("node-and-operator-gone", "default")],
)
def test_rounds_of_lost_masters(orders: Orders, name: str, timers: str) -> None:
    retimed(orders, timers)
    told, book, kind = list[float](), f"{name}-{timers}", KINDS[name]
    with orders.producer(book, f"{name}-{timers}", ROUNDS * ROUND_S_MAX, pause_ms=PAUSE_MS) as producer:
        orders.until_producing(book)
        for number in range(ROUNDS):
            until_well(orders)
            place_leader(orders, kind.leader_too)
            told.append(one_round(orders, book, kind.fault))
            print(f"{name}, {timers} timers, {number}: {told[-1]:.1f} s; load {os.getloadavg()[0]:.0f}", flush=True)
        orders.stop_producers()
        producer.wait(60)
    print(f"{name}, {timers} timers: {ROUNDS} rounds, p50 {statistics.median(told):.1f} s, longest {max(told):.1f} s")
    orders.until_in_sync()
    orders.report(book, f"{name}-{timers}")


def one_round(orders: Orders, book: str, fault: Callable[[Orders, str], AbstractContextManager[None]]) -> float:
    """From a master to another one."""
    former, at_ms = orders.master(), time.time() * 1000
    uid = orders.cluster.admin.get(f"{PODS}/{former}")["metadata"]["uid"]
    with fault(orders, former):
        calmly(orders, lambda: orders.masters() not in ([], [former]), "somebody else leads")
        calmly(orders, lambda: served_after(orders, book, at_ms) is not None, "somebody serves")
    seconds = served_after(orders, book, at_ms)
    assert seconds is not None
    if fault is killed:  # the kubelet would wait longer before each new start
        replaced(orders, former, uid)
    return seconds


def until_well(orders: Orders) -> None:
    calmly(orders, lambda: len(orders.in_sync()) == MEMBERS and orders.is_ready(), "all are in sync")


def place_leader(orders: Orders, is_beside: bool) -> None:
    """The operator that leads runs on the master's node, or it does not."""
    while True:
        calmly(orders, lambda: faults.operators_node(orders, faults.leader(orders)), "an operator leads")
        holder, master = faults.leader(orders), orders.master()
        place = faults.operators_node(orders, holder)
        if (place == orders.node_of(master)) is is_beside:
            return
        here = [each["metadata"]["name"] for each in orders.members() if each["spec"]["nodeName"] == place]
        if is_beside and here:
            ordinal = here[0].rpartition("-")[2]
            wish = {"gantrymq.io/force-failover": f"b0/{ordinal}@{orders.epoch()}"}
            orders.cluster.admin.merge(BROKERCLUSTER, {"metadata": {"annotations": wish}})
            calmly(orders, lambda: orders.masters() == here, "the member beside it leads")  # noqa: B023
            until_well(orders)
        else:
            orders.cluster.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{holder}")
            calmly(orders, lambda: faults.leader(orders) not in ("", holder), "another one leads")  # noqa: B023


def calmly(orders: Orders, holds: Callable[[], object], what: str) -> None:
    """Wait, and ask twice a second only: anyone who waits needs the processor that is measured."""

    def later() -> bool:
        threading.Event().wait(0.5)
        return bool(holds())

    orders.until(later, what)


def retimed(orders: Orders, timers: str) -> None:
    """The cluster with these times, rolled out."""
    before = orders.uids()
    if orders.cluster.admin.get(BROKERCLUSTER)["spec"]["brokers"]["failover"]["timers"] != timers:
        orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"failover": {"timers": timers}}}})
        orders.until_rolled(before)


def served_after(orders: Orders, book: str, at_ms: float) -> float | None:
    """Seconds from the fault to the end of the pause that followed it; None while it lasts."""
    times = sorted(each for each in orders.ledger(book, last=5000).values() if each > at_ms - 1000)
    pauses = [(later - earlier, later) for earlier, later in itertools.pairwise(times) if later > at_ms]
    longest, end = max(pauses, default=(0, 0))
    return (end - at_ms) / 1000 if longest > PAUSE_MS_MIN else None


def replaced(orders: Orders, pod: str, uid: str) -> None:
    """By a pod that was not killed before."""

    def is_new() -> bool:
        try:
            return bool(orders.cluster.admin.get(f"{PODS}/{pod}")["metadata"]["uid"] != uid)
        except RefusedError:
            return False

    orders.cluster.admin.delete(f"{PODS}/{pod}")
    calmly(orders, is_new, f"{pod} is another pod")
