"""A deletion: who leads is told to the end, and what it waits for is named."""

from __future__ import annotations

import pytest

from gantry_operator.kube import lease_path
from gantry_operator.settings import OnUpgrade
from testkit.kube.operatorbench import KEY, PATH, PODS, Bench

NOW = "2026-11-22T01:00:00Z"


def going(policy: str) -> Bench:
    """A cluster that works and was just deleted; one of its pods is on a node that does not answer."""
    bench = Bench()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = policy
    bench.works()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = NOW
    bench.server.documents[f"{PODS}/orders-b0-1"]["spec"]["nodeName"] = "n7"
    return bench


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_deletion_names_the_pods_that_it_waits_for_and_who_leads(policy: str) -> None:
    bench = going(policy)
    bench.once()
    for pod in [each for each in bench.server.documents if each.startswith(PODS) and not each.endswith("b0-1")]:
        del bench.server.documents[pod]
    lease = bench.server.documents[lease_path("messaging", "orders-b0")]
    lease["spec"]["holderIdentity"] = "1.0/p"
    lease["metadata"]["annotations"]["gantrymq.io/sync-set"] = "1.0"
    bench.once()
    assert bench.conditions()["Reconciling"] == ("True", "Deleting") and bench.conditions()["Ready"][1] == "Deleting"
    assert "it waits for pods to end: orders-b0-1 on node n7; " in bench.said("Reconciling")
    assert "node.kubernetes.io/out-of-service=:NoExecute" in bench.said("Reconciling")
    (group,) = bench.server.documents[PATH]["status"]["groups"]
    assert group["master"]["pod"] == "orders-b0-1" and bench.conditions()["FailoverPossible"][1] == "NobodyInSync"


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_loops_are_begun_and_go_on_while_pods_of_a_deleted_cluster_are_there(policy: str) -> None:
    bench = going(policy)
    key = bench.loops.kept.pop(KEY)
    bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)
    bench.once()
    assert bench.loops.kept == {KEY: key}
    for pod in [each for each in bench.server.documents if each.startswith(PODS)]:
        del bench.server.documents[pod]
    bench.once()
    assert not bench.loops.kept
    assert (lease_path("messaging", "orders-b0") in bench.server.documents) is (policy == "Retain")


def test_a_cluster_that_cannot_be_read_keeps_its_volumes_until_it_can() -> None:
    bench = going("Delete")
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Later"
    bench.once()
    assert bench.server.deeds == ["merge status"]
    assert "its volumes stay until its specification can be read: spec.deletionPolicy: 'Later'" in bench.said(
        "Reconciling"
    )
