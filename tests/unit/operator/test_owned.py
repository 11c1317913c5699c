"""Owned objects in passes: what is set back, what is applied no second time, and how often the API server is asked."""

from __future__ import annotations

import pytest

from gantry_operator.reconcile import LATER_S
from testkit.kube.operatorbench import PODS, SET, Bench


def test_what_somebody_changed_by_hand_is_set_back_and_told_once() -> None:
    """Both edits at once, and nothing is rolled on the image that somebody wrote into the set."""
    bench = Bench().works()
    policy = bench.server.documents["/apis/networking.k8s.io/v1/namespaces/messaging/networkpolicies/orders-broker"]
    rules = len(policy["spec"]["ingress"])
    policy["spec"]["ingress"].append({})
    template = bench.server.documents[SET]["spec"]["template"]
    template["spec"]["containers"][0]["image"] = "evil:1"
    bench.server.documents[SET]["status"]["updateRevision"] = "another"
    bench.once()
    assert bench.server.deeds == ["apply NetworkPolicy", "apply StatefulSet"]
    changed = bench.server.documents["/apis/networking.k8s.io/v1/namespaces/messaging/networkpolicies/orders-broker"]
    assert len(changed["spec"]["ingress"]) == rules
    assert bench.server.documents[SET]["spec"]["template"]["spec"]["containers"][0]["image"] == "image:1"
    assert bench.server.events().count(("Warning", "DriftRepaired")) == 1
    bench.server.writes.clear()
    assert bench.once() == LATER_S and bench.server.writes == []


def test_an_object_that_differs_after_every_apply_is_applied_once_and_told() -> None:
    """As where an admission webhook writes another image."""
    bench = Bench()
    bench.server.admits["StatefulSet"] = lambda made: made["spec"].update(podManagementPolicy="OrderedReady")
    bench.works()
    bench.once()
    assert bench.server.writes == [] and bench.server.events().count(("Warning", "DriftStays")) == 1
    bench.server.changed(config={"pull.count_max": "64"})
    bench.once()
    assert "apply StatefulSet" in bench.server.deeds


@pytest.mark.parametrize("groups", [1, 64])
def test_a_pass_asks_once_for_each_kind_however_many_groups_there_are(groups: int) -> None:
    bench = Bench(groups=groups).works()
    bench.server.reads.clear()
    bench.once()
    reads = bench.server.reads
    assert len(reads) == len(set(reads)) == 14, reads


def test_a_configuration_stays_as_long_as_a_pod_was_made_for_it() -> None:
    bench = Bench().works()
    folder = "/api/v1/namespaces/messaging/configmaps"
    (former,) = bench.server.named(folder)
    bench.server.changed(config={"pull.count_max": "64"})
    bench.once()
    assert len(bench.server.named(folder)) == 2, "pods that restart in place read the former one"
    for pod in [each for each in bench.server.documents if each.startswith(f"{PODS}/orders-b0")]:
        del bench.server.documents[pod]
    bench.once()
    assert former in bench.server.named(folder), "a set whose pods are not all there may still make one of it"
    bench.server.runs(master=0)
    bench.once()
    assert former not in bench.server.named(folder) and len(bench.server.named(folder)) == 1


def test_a_configuration_that_a_set_still_names_stays_where_the_set_may_not_be_changed() -> None:
    bench = Bench().works()
    (former,) = bench.server.named("/api/v1/namespaces/messaging/configmaps")
    bench.server.changed(config={"pull.count_max": "64"})
    bench.server.refuses["StatefulSet"] = 403
    bench.once()
    assert former in bench.server.named("/api/v1/namespaces/messaging/configmaps")
