"""What an API server that refuses one object keeps from being done: that object, and what cannot be without it."""

from __future__ import annotations

import asyncio

import pytest

from gantry_operator.kube import KubeError
from gantry_operator.reconcile import LATER_S
from testkit.kube.operatorbench import KEY, PATH, SET, Bench


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_one_object_that_is_refused_stops_nothing_else_and_each_is_named(status: int) -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"})
    bench.server.documents[PATH]["spec"]["networkPolicy"]["clients"] = "Any"
    bench.server.documents[PATH]["spec"]["nameserver"]["replicas"] = 3
    bench.server.refuses = {"NetworkPolicy": status, "PodDisruptionBudget": status}
    bench.server.documents.pop("/apis/policy/v1/namespaces/messaging/poddisruptionbudgets/orders-ns")
    bench.server.runs(master=2, in_sync="1.0,2.0")
    bench.once()
    assert "apply ConfigMap" in bench.server.deeds and bench.server.deeds.count("apply StatefulSet") == 2
    assert bench.server.documents[PATH]["status"]["groups"][0]["master"]["pod"] == "orders-b0-2"
    assert bench.conditions()["Stalled"] == ("True", "Refused") and ("Warning", "Refused") in bench.server.events()
    for each in ("NetworkPolicy orders-broker", "PodDisruptionBudget orders-ns"):
        assert f"{each}: {status} as the test wants it" in bench.said("Stalled")
    assert bench.conditions()["Reconciling"][0] == "True", "the plan goes on"
    assert KEY in bench.loops.kept
    assert bench.refused == [status] * 3, (
        "both policies and a budget: an alert counts them although the pass does not fail"
    )
    bench.server.refuses.clear()
    bench.once()
    assert len(bench.refused) == 3
    assert bench.conditions()["Stalled"] == ("False", "NoError")


def test_a_set_waits_for_what_its_pods_need_and_that_is_refused() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"}, replicasPerGroup=4)
    bench.server.refuses["ConfigMap"] = 403
    assert bench.once() == LATER_S
    assert bench.server.documents[SET]["spec"]["replicas"] == 3 and "delete orders-b0-1" not in bench.server.deeds
    assert bench.conditions()["Reconciling"] == ("True", "Waiting")


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (KeyError("x"), "PassFailed", "KeyError('x')"),
        (KubeError("GET pods", 403, "forbidden"), "Refused", "GET pods: 403 forbidden"),
        (KubeError("GET pods", 503, "busy"), "NoError", ""),
        (TimeoutError(), "NoError", ""),
    ],
)
def test_a_pass_that_failed_stands_in_the_status_until_one_succeeds(error: Exception, reason: str, words: str) -> None:
    bench = Bench().works()
    asyncio.run(bench.operator.failed(KEY, error))
    assert bench.conditions()["Stalled"][1] == reason and words in bench.said("Stalled")
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError")
