"""One operator works: real processes against a real API server, which says in its audit log who wrote what.

Nodes are not needed for it: what the operator makes is made, and nothing comes of it.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testkit.kube.api import Document, RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.operators import LEASE, NAMESPACE, Replica
from testkit.kube.registers import NAMESPACE as HOME
from testkit.kube.registers import fresh_name
from testkit.pairplay import until
from testkit.sources import ROOT

CHART = ROOT / "charts" / "gantrymq"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
CLUSTERS = f"/apis/gantrymq.io/v1alpha1/namespaces/{HOME}/brokerclusters"
EXIT_LOST = 3
AGAIN_S = 3.0  # passes over a cluster without pods come every two seconds


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> ControlPlane:
    for path in sorted((CHART / "crds").iterdir()):
        plane.admin.apply(path.read_text())
    until(lambda: is_there(plane, CLUSTERS), "the kind is served")
    return plane


@pytest.fixture
def home(kinds: ControlPlane) -> Iterator[ControlPlane]:
    """Without what the test before left."""
    yield kinds
    for each in kinds.admin.get(CLUSTERS)["items"]:
        kinds.admin.delete(f"{CLUSTERS}/{each['metadata']['name']}")
    if is_there(kinds, LEASE_PATH):
        kinds.admin.delete(LEASE_PATH)


def is_there(plane: ControlPlane, path: str) -> bool:
    try:
        plane.admin.get(path)
    except RefusedError:
        return False
    return True


def made(plane: ControlPlane, namespace: str = HOME) -> str:
    """A cluster of a new name."""
    document = yaml.safe_load((CHART / "examples" / "orders.yaml").read_text())
    document["metadata"] = {"name": fresh_name(), "namespace": namespace}
    plane.admin.create(CLUSTERS.replace(HOME, namespace), document)
    return str(document["metadata"]["name"])


def is_told(plane: ControlPlane, name: str) -> bool:
    """Whether the operator said something about the cluster."""
    return "conditions" in plane.admin.get(f"{CLUSTERS}/{name}").get("status", {})


def holder(plane: ControlPlane) -> str:
    lease: Document = plane.admin.get(LEASE_PATH)
    return str(lease["spec"]["holderIdentity"]).partition("_")[0]


def begun(replica: Replica) -> None:
    replica.start()
    until(replica.is_ready, f"{replica.name} is ready")


def test_the_standby_watches_and_writes_nothing_and_follows_at_once_when_the_leader_is_told_to_go(
    home: ControlPlane, tmp_path: Path
) -> None:
    with Replica(home, tmp_path, "a") as first, Replica(home, tmp_path, "b") as second:
        begun(first)
        until(first.leads, "the first leads")
        begun(second)
        name = made(home)
        until(lambda: is_told(home, name), "the leader works")
        assert second.writes() == [] and not second.leads()
        start = time.monotonic()
        first.send(signal.SIGTERM)
        assert first.ended() == 0
        until(lambda: holder(home) == "b", "the second leads")
        print(f"another one led {time.monotonic() - start:.1f} s after SIGTERM")
        other = made(home)
        until(lambda: is_told(home, other), "the second works")
        assert not [each for each in second.writes() if each.status >= 400], "nothing of what it wrote was refused"


@pytest.mark.slow
def test_a_leader_that_is_killed_is_followed_and_one_that_slept_ends_without_a_write(
    home: ControlPlane, tmp_path: Path
) -> None:
    with Replica(home, tmp_path, "a") as first, Replica(home, tmp_path, "b") as second:
        begun(first)
        until(first.leads, "the first leads")
        begun(second)
        name = made(home)
        until(lambda: is_told(home, name), "the leader works")
        first.send(signal.SIGSTOP)
        before = len(first.writes())
        start = time.monotonic()
        until(lambda: holder(home) == "b", "the second leads")
        print(f"another one led {time.monotonic() - start:.1f} s after SIGSTOP")
        other = made(home)
        until(lambda: is_told(home, other), "the second works")
        first.send(signal.SIGCONT)
        assert first.ended() == EXIT_LOST
        assert len(first.writes()) == before, "anyone who slept has nothing to say"
        assert holder(home) == "b" and second.leads()


@pytest.mark.slow
def test_objects_are_handed_back_before_an_uninstallation_and_nothing_hangs(home: ControlPlane, tmp_path: Path) -> None:
    """What the chart's pre-delete Job runs, beside an operator that is at work."""
    with Replica(home, tmp_path, "a") as first:
        begun(first)
        until(first.leads, "it leads")
        name = made(home)
        home.admin.merge(f"{CLUSTERS}/{name}", {"spec": {"deletionPolicy": "Delete"}})
        until(lambda: home.admin.get(f"{CLUSTERS}/{name}")["metadata"].get("finalizers"), "it has a finalizer")
        leaving = Replica(home, tmp_path, "leaving")
        leaving.start(module="gantry_operator.leaving")
        assert leaving.ended() == 0, leaving.log()
        assert first.ended() == EXIT_LOST and not is_there(home, LEASE_PATH)
        assert "handed back" in leaving.log()
        assert not home.admin.get(f"{CLUSTERS}/{name}")["metadata"].get("finalizers")
        home.admin.delete(f"{CLUSTERS}/{name}")
        assert not is_there(home, f"{CLUSTERS}/{name}"), "it goes at once, without an operator"


@pytest.mark.slow
def test_a_lease_that_somebody_deletes_stops_nobody(home: ControlPlane, tmp_path: Path) -> None:
    with Replica(home, tmp_path, "a") as first:
        begun(first)
        until(first.leads, "it leads")
        home.admin.delete(LEASE_PATH)
        until(lambda: is_there(home, LEASE_PATH), "there is a Lease again")
        name = made(home)
        until(lambda: is_told(home, name), "it works")
        assert first.leads()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_api_server_that_is_away_for_a_minute_costs_a_new_start_and_nothing_else(
    home: ControlPlane, tmp_path: Path
) -> None:
    """Anyone who cannot renew ends at once, as a pod would be started again; anyone who waits goes on waiting."""
    with Replica(home, tmp_path, "a") as first, Replica(home, tmp_path, "b") as second:
        begun(first)
        until(first.leads, "the first leads")
        begun(second)
        home.stop("kube-apiserver")
        away = time.monotonic()
        assert first.ended() == EXIT_LOST
        assert time.monotonic() - away < 30
        first.start()
        while time.monotonic() - away < 60:
            assert second.process is not None
            with pytest.raises(Exception, match="timed out"):
                second.process.wait(1)
            assert second.page("/healthz")[0] == 200, "an API server that is away is no reason to start again"
        home.start_api_server()
        home.wait_ready()
        start = time.monotonic()
        name = made(home)
        until(lambda: is_told(home, name), "somebody works")
        print(f"somebody worked {time.monotonic() - start:.1f} s after the API server was back")
        until(lambda: first.is_ready() and second.is_ready(), "both are ready")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tokens_that_end_are_read_again(home: ControlPlane, tmp_path: Path) -> None:
    """Tokens of ten minutes, the shortest that an API server gives, replaced after eight as the kubelet does."""
    with Replica(home, tmp_path, "a", token_s=600) as only:
        begun(only)
        until(only.leads, "it leads")
        ends = time.monotonic() + 600
        pause(ends - 120 - time.monotonic())
        only.renew_token(600)
        pause(ends + 15 - time.monotonic())
        name = made(home)
        until(lambda: is_told(home, name), "it works after the first token's end")
        assert only.leads() and only.is_ready()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_unchanged_cluster_costs_no_write_but_renewals(home: ControlPlane, tmp_path: Path) -> None:
    with Replica(home, tmp_path, "a") as only:
        begun(only)
        names = [made(home) for _ in range(3)]
        until(lambda: all(is_told(home, name) for name in names), "the leader works")
        settled = settled_writes(only)
        pause(120)
        late = [each for each in only.writes()[settled:] if (each.resource, each.name) != ("leases", LEASE)]
        assert late == []


def pause(seconds: float) -> None:
    """Real time, which the API server's tokens and everybody's quiet are made of."""
    threading.Event().wait(seconds)


def settled_writes(replica: Replica) -> int:
    """How much it has written once the beginning is over."""
    for _ in range(60):
        before = others(replica)
        pause(AGAIN_S)
        if others(replica) == before:
            return len(replica.writes())
    raise AssertionError("it goes on writing")


def others(replica: Replica) -> int:
    return sum((each.resource, each.name) != ("leases", LEASE) for each in replica.writes())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_clusters_and_other_peoples_pods_need_little_memory(home: ControlPlane, tmp_path: Path) -> None:
    clusters, foreign = 20, 2000
    admin = home.admin
    spec = {"containers": [{"name": "c", "image": "nobody/runs:this", "env": [{"name": "N", "value": "v" * 200}]}]}
    pods = "/api/v1/namespaces/default/pods"
    if not is_there(home, "/api/v1/namespaces/default/serviceaccounts/default"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        admin.create("/api/v1/namespaces/default/serviceaccounts", account)
    for number in range(foreign):
        about = {"name": f"foreign-{number}", "labels": {"app": "other"}}
        admin.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    with Replica(home, tmp_path, "a") as only:
        begun(only)
        names = [made(home) for _ in range(clusters)]
        until(lambda: all(is_told(home, name) for name in names), "the leader works")
        settled_writes(only)
        rss = only.rss_bytes()
        series = len(re.findall(r"^[a-z]", only.page("/metrics")[1], re.MULTILINE))
        print(f"{clusters} clusters, {foreign} foreign pods: {rss / 1e6:.0f} MB, {series} series")
        assert rss < 150e6 and series < 300
    for number in range(foreign):
        admin.delete(f"{pods}/foreign-{number}")
