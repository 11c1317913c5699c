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


@pytest.mark.parametrize("kind", ["StatefulSet", "ConfigMap", "NetworkPolicy"])
def test_an_apply_that_fails_stands_in_the_status_and_the_others_are_done(kind: str) -> None:
    """A webhook that does not answer, a field that the schema lacks: the server says 500, for as long as it likes."""
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"})
    bench.server.documents[PATH]["spec"]["networkPolicy"]["clients"] = "Any"
    bench.server.refuses[kind] = 500
    with pytest.raises(KubeError, match="500"):
        bench.once()
    asyncio.run(bench.operator.failed(KEY, KubeError(f"PATCH {kind}", 500, "as the test wants it")))
    assert bench.conditions()["Reconciling"] == ("True", "NotApplied") and bench.conditions()["Ready"][0] == "False"
    assert f"{kind} orders" in bench.said("Reconciling") and "as the test wants it" in bench.said("Reconciling")
    assert bench.conditions()["Stalled"] == ("False", "NoError")
    done = {"StatefulSet", "ConfigMap", "NetworkPolicy"} - {kind} - ({"StatefulSet"} if kind == "ConfigMap" else set())
    assert done <= {each.removeprefix("apply ") for each in bench.server.deeds}
    bench.server.refuses.clear()
    bench.once()
    assert bench.conditions()["Reconciling"][1] != "NotApplied"


def test_a_pass_that_fails_before_a_new_specification_is_applied_does_not_call_it_done() -> None:
    bench = Bench().works()
    document = bench.server.documents[PATH]
    document["metadata"]["generation"] = document["status"]["observedGeneration"] + 1
    asyncio.run(bench.operator.failed(KEY, KubeError("GET pods", 503, "busy")))
    assert bench.conditions()["Reconciling"] == ("True", "PassFailed") and "busy" in bench.said("Reconciling")


def test_a_pod_that_went_since_it_was_listed_is_no_refusal() -> None:
    bench = Bench().works()
    bench.server.runs(master=2, in_sync="1.0,2.0")
    real = bench.server.merge

    async def merge(path: str, change: dict[str, object]) -> None:
        if path.endswith("/pods/orders-b0-2"):
            raise KubeError(f"PATCH {path}", 404, "not found")
        await real(path, change)

    bench.server.merge = merge  # type: ignore[method-assign,assignment]
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError")


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
