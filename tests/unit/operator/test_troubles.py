"""What keeps pods from coming up: the condition names the field or the container, and what to do."""

from __future__ import annotations

import pytest

from testkit.kube.operatorbench import PODS, Bench


@pytest.mark.parametrize(
    ("state", "reason", "field"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, "ImageCannotBePulled", "spec.image: image:1"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "Crashing", "kubectl logs orders-b0-1 --previous"),
        ("unbound PersistentVolumeClaims", "NoVolume", "spec.brokers.storage.storageClassName"),
        ("0/4 nodes are available", "NoNode", "antiAffinity, resources"),
    ],
)
def test_what_keeps_a_pod_from_coming_up_names_the_field(state: object, reason: str, field: str) -> None:
    bench = Bench().works()
    status = bench.server.documents[f"{PODS}/orders-b0-1"]["status"]
    if isinstance(state, str):
        since = {"lastTransitionTime": "2020-01-01T00:00:00Z"}
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": state, **since}]
    else:
        status["containerStatuses"] = [{"state": state}]
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", reason) and field in bench.said("Stalled")


@pytest.mark.parametrize(
    ("reason", "stalled", "said"),
    [
        ("CrashLoopBackOff", "Crashing", "kubectl logs orders-ns-1 --previous"),
        ("ImagePullBackOff", "ImageCannotBePulled", "spec.image: image:1 cannot be pulled for orders-ns-1"),
    ],
)
def test_name_servers_that_do_not_come_up_stall_the_cluster(reason: str, stalled: str, said: str) -> None:
    bench = Bench().works()
    status = bench.server.documents[f"{PODS}/orders-ns-1"]["status"]
    status["containerStatuses"] = [{"state": {"waiting": {"reason": reason}}}]
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", stalled) and said in bench.said("Stalled")
