"""An upgrade from a commit of the past to this one and back, on four real kubelets, and what is documented beside it.

Each commit upgrades from this tree under another version (test_smoke).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.kube import previous, projectimages, shell, upgrading
from testkit.kube.cluster import Cluster
from testkit.kube.orders import BROKERCLUSTER, CHART, HOME, MEMBERS, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
LEDGER = "upgrade"


@pytest.fixture(scope="module")
def orders(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Orders, Path]]:
    """The earlier version installed by helm, its cluster, and both versions' images on every node."""
    if not previous.is_known():
        pytest.skip(f"missing the commit {previous.COMMIT}; git fetch --unshallow")
    tree = previous.checked_out(tmp_path_factory.mktemp("previous"))
    cluster.load([previous.tar(target, tree) for target in projectimages.TARGETS])
    shell.load(cluster)
    play = Orders(cluster)
    play.install_as_is(tree / "charts" / "gantrymq")
    play.apply()
    play.client("topic", "create", "tea")
    yield play, tree
    play.stop_producers()


def test_an_upgrade_under_load_and_back_lose_nothing_and_after_an_uninstallation_everything_can_be_deleted(
    orders: tuple[Orders, Path],
) -> None:
    """One test, since each part begins where the one before ended."""
    play, _ = orders
    upgrading.up_and_back(play, previous.name("broker"), LEDGER)
    play.cluster.helm("upgrade", "gantrymq", str(CHART), "--namespace", SYSTEM, "--reset-then-reuse-values")
    play.until(lambda: upgrading.images(play) == {projectimages.charted("broker")}, "this version is back")
    volumes_are_exchanged(play)
    leave(play)


def volumes_are_exchanged(play: Orders) -> None:
    """Other storage for a cluster that is applied again: named, and one volume exchanged by the documented lines."""
    play.until(lambda: play.is_ready() and len(play.in_sync()) == MEMBERS, "all are in sync")
    play.delete()
    play.apply(storage={"size": "2Gi", "storageClassName": "local"})
    said = "store-orders-b0-2 has 1Gi, not 2Gi"
    play.until(lambda: said in message(play, "VolumesMatch"), "the volumes that differ are named")
    slave = next(f"orders-b0-{ordinal}" for ordinal in (2, 1) if f"orders-b0-{ordinal}" != play.master())
    text = upgrading.OPERATORS.read_text().partition("## Storage")[2].partition("## Leaving")[0]
    lines = [each.strip() for each in text.splitlines() if each.startswith("      kubectl delete ")]
    assert len(lines) == 2
    for each in lines:
        done = shell.run(play.cluster, f"{each.replace('orders-b0-2', slave)} --namespace {HOME}")
        assert done.returncode == 0, done.stdout + done.stderr
    play.until(lambda: f"store-{slave} " not in message(play, "VolumesMatch"), "the volume is another one")
    play.until(lambda: play.is_ready() and len(play.in_sync()) == MEMBERS, "it is in sync again")
    assert set(play.ledger(LEDGER)) <= set(play.consumed("exchanged"))


def leave(play: Orders) -> None:
    """helm uninstall, and then every namespace goes, also with an object whose volumes were to go with it."""
    admin = play.cluster.admin
    admin.merge(BROKERCLUSTER, {"spec": {"deletionPolicy": "Delete"}})
    play.until(lambda: admin.get(BROKERCLUSTER)["metadata"].get("finalizers"), "the volumes are to go with it")
    play.cluster.helm("uninstall", "gantrymq", "--namespace", SYSTEM)
    assert not admin.get(BROKERCLUSTER)["metadata"].get("finalizers")
    play.client("produce", "exchanged", "after the operator")  # brokers go on: labels would say so of dead ones too
    for namespace in (HOME, SYSTEM, "clients"):
        admin.delete(f"/api/v1/namespaces/{namespace}")
    play.until(lambda: not {HOME, SYSTEM, "clients"} & namespaces(play), "the namespaces are gone")


def message(play: Orders, kind: str) -> str:
    """Of a condition."""
    found = play.cluster.admin.get(BROKERCLUSTER).get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in found if each["type"] == kind), "")


def namespaces(play: Orders) -> set[str]:
    return {each["metadata"]["name"] for each in play.cluster.admin.get("/api/v1/namespaces")["items"]}
