"""An upgrade from an earlier version to this one and back, on four real kubelets, while a producer keeps a ledger."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_definitions import OPERATORS
from testkit.kube import previous, projectimages, shell
from testkit.kube.cluster import Cluster, condition
from testkit.kube.orders import BROKERCLUSTER, CHART, CLIENT, HOME, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
LEDGER, LOAD_S = "/tmp/upgrade", 1500
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/brokerclusters.gantrymq.io"


@pytest.fixture(scope="module")
def orders(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Orders, Path]]:
    """The earlier version installed by helm, its cluster, and both versions' images on every node."""
    if not previous.is_known():
        pytest.skip(f"missing the commit {previous.COMMIT}; git fetch --unshallow")
    tree = previous.checked_out(tmp_path_factory.mktemp("previous"))
    cluster.load([previous.tar(target, tree) for target in projectimages.TARGETS])
    shell.load(cluster)
    chart = str(tree / "charts" / "gantrymq")
    cluster.helm("install", "gantrymq", chart, "--namespace", SYSTEM, "--create-namespace")
    cluster.admin.apply(CLIENT)
    play = Orders(cluster)
    play.until(lambda: play.is_ready("/api/v1/namespaces/clients/pods/client"), "the client is ready")
    play.apply()
    yield play, tree
    play.stop_producers()


def images(orders: Orders) -> set[str]:
    """Of brokers' pods."""
    return {each["spec"]["containers"][0]["image"] for each in orders.members()}


def rolled(orders: Orders, book: str, image: str, before: set[str]) -> None:
    """All members run this image and are in sync; prints the longest pause of the ledger so far."""
    orders.until_rolled(before)
    assert images(orders) == {image}
    times = sorted(orders.ledger(book).values())
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    print(f"{image}: {len(times)} acknowledged, longest pause so far {max(pauses) / 1000:.1f} s")


def test_an_upgrade_under_load_and_the_way_back_lose_nothing(orders: tuple[Orders, Path]) -> None:
    play, _ = orders
    assert images(play) == {previous.name("broker")}
    play.client("topic", "create", "tea")
    producer = play.producer(LEDGER, "p", LOAD_S)
    play.until_producing(LEDGER)
    (line,) = [each for each in OPERATORS.read_text().splitlines() if each.startswith("    helm upgrade gantrymq ")]
    before = play.uids()
    done = shell.run(play.cluster, line.strip())
    assert done.returncode == 0, done.stdout + done.stderr + play.trouble()
    rolled(play, LEDGER, projectimages.charted("broker"), before)
    assert condition(play.cluster.admin.get(BROKERCLUSTER), "ImageUpToDate") == "True"
    assert play.cluster.admin.get(KIND)["metadata"]["generation"] > 1, "the Job brought the new kinds"
    before = play.uids()
    play.cluster.helm("rollback", "gantrymq", "1", "--namespace", SYSTEM)
    rolled(play, LEDGER, previous.name("broker"), before)
    play.stop_producers()
    producer.wait(60)
    play.report(LEDGER, "after")


def test_after_an_uninstallation_objects_and_namespaces_can_be_deleted(orders: tuple[Orders, Path]) -> None:
    play, _ = orders
    flags = ["--namespace", SYSTEM, "--reset-then-reuse-values"]
    play.cluster.helm("upgrade", "gantrymq", str(CHART), *flags)
    admin = play.cluster.admin
    admin.merge(BROKERCLUSTER, {"spec": {"deletionPolicy": "Delete"}})
    play.until(lambda: admin.get(BROKERCLUSTER)["metadata"].get("finalizers"), "the volumes are to go with it")
    play.cluster.helm("uninstall", "gantrymq", "--namespace", SYSTEM)
    assert not admin.get(BROKERCLUSTER)["metadata"].get("finalizers")
    assert play.masters(), "brokers go on"
    for namespace in (HOME, SYSTEM, "clients"):
        admin.delete(f"/api/v1/namespaces/{namespace}")
    play.until(lambda: not {HOME, SYSTEM, "clients"} & namespaces(play), "the namespaces are gone")


def namespaces(orders: Orders) -> set[str]:
    return {each["metadata"]["name"] for each in orders.cluster.admin.get("/api/v1/namespaces")["items"]}
