"""HTTP queues in passes: how they come and go, their users, and the keys that they share with proxies."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gantry_operator.api import lenient
from gantry_operator.reconcile import LATER_S, SOON_S
from testkit.kube.clusters import document
from testkit.kube.operatorbench import PATH, PODS, Bench

Document = dict[str, Any]
HOME = "/api/v1/namespaces/messaging"
DEPLOYMENT = "/apis/apps/v1/namespaces/messaging/deployments/orders-queues"
SERVICE, PROXIES = f"{HOME}/services/orders-queues", f"{HOME}/services/orders-proxy"
KEYS, USERS = f"{HOME}/secrets/orders-proxy-keys", f"{HOME}/secrets/callers"
OURS = {
    DEPLOYMENT, SERVICE, "/apis/policy/v1/namespaces/messaging/poddisruptionbudgets/orders-queues",
    "/apis/networking.k8s.io/v1/namespaces/messaging/networkpolicies/orders-queues",
}  # fmt: skip


def given(bench: Bench, **spec: Document | None) -> Bench:
    """A person adds `spec.queues` or `spec.proxy`, changes one, or takes it away."""
    wanted = bench.server.documents[PATH]["spec"]
    for name, each in spec.items():
        wanted.pop(name, None)
        wanted |= {} if each is None else {name: each}
    bench.server.documents[PATH]["metadata"]["generation"] += 1
    return bench


def callers(text: bytes, name: str = "users") -> Document:
    return {"metadata": {"name": "callers", "uid": "u-c"}, "data": {name: base64.b64encode(text).decode()}}


def queues(**more: object) -> Document:
    return {"users": {"secretName": "callers"}, **more}


def working(users: Document | None = None) -> Bench:
    """A cluster with HTTP queues that are ready."""
    bench = given(Bench().works(), queues=queues())
    bench.server.documents[USERS] = users or callers(b"app secret\n")
    bench.once()
    bench.once()
    bench.serves("queues")
    bench.once()
    bench.server.writes.clear()
    return bench


def template(bench: Bench) -> Document:
    found: Document = bench.server.documents[DEPLOYMENT]["spec"]["template"]
    return found


def owners(bench: Bench) -> set[str]:
    return {each["name"] for each in bench.server.documents[KEYS]["metadata"]["ownerReferences"]}


def test_the_field_brings_them_with_keys_and_users_and_an_unchanged_cluster_costs_no_write() -> None:
    bench = given(Bench().works(), queues=queues())
    bench.server.documents[USERS] = callers(b"app secret\n")
    assert bench.once() == SOON_S
    assert OURS - {DEPLOYMENT} <= set(bench.server.documents) and DEPLOYMENT not in bench.server.documents
    assert bench.conditions()["QueuesReady"] == ("False", "NotApplied")
    bench.once()
    (server,) = template(bench)["spec"]["containers"]
    told = dict(zip(server["args"][1::2], server["args"][2::2], strict=True))
    (volume,) = template(bench)["spec"]["volumes"]
    (mount,) = server["volumeMounts"]
    assert server["args"][0] == "queues" and (told["--queues-port"], told["--http-port"]) == ("9407", "9404")
    paths = [each["path"] for source in volume["projected"]["sources"] for each in source["secret"]["items"]]
    assert {told["--handle-key-file"], told["--queues-users"]} == {f"{mount['mountPath']}/{path}" for path in paths}
    assert "subPath" not in mount, "a kubelet does not follow changes of a single file"
    bench.serves("queues", ready=0)
    bench.once()
    assert bench.conditions()["Ready"] == ("False", "NoQueues")
    bench.serves("queues")
    bench.once()
    assert bench.conditions()["QueuesReady"] == ("True", "AllReady") and bench.conditions()["Ready"][0] == "True"
    assert "ProxyReady" not in bench.conditions()
    assert bench.server.documents[PATH]["status"]["queues"] == {
        "replicas": 2, "ready": 2, "endpoint": "orders-queues.messaging:9407",
    }  # fmt: skip
    bench.server.writes.clear()
    assert bench.once() == LATER_S and bench.server.writes == []


def test_a_change_of_the_users_replaces_no_pod_and_one_of_the_keys_does() -> None:
    bench = working()
    before = template(bench)
    bench.server.documents[USERS] = callers(b"app secret\nother secret2\n")
    bench.once()
    assert template(bench) == before and bench.server.deeds == []
    keys = base64.b64encode(b"n" * 32 + b"\n" + base64.b64decode(bench.server.documents[KEYS]["data"]["keys"]))
    bench.server.documents[KEYS]["data"]["keys"] = keys.decode()
    bench.once()
    assert template(bench) != before


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (None, "SecretMissing", "there is no Secret callers in this namespace"),
        (callers(b"x y", "user"), "SecretInvalid", "has no field users"),
        (callers(b"# nobody\n"), "SecretInvalid", "0 users"),
        (callers(b"app secret\nalone\n"), "SecretInvalid", "line 2: expected ID SECRET"),
        (callers(b"app \xff\n"), "SecretInvalid", "no UTF-8"),
        ({"metadata": {}, "data": {"users": "%"}}, "SecretInvalid", "no base64"),
    ],
)
def test_users_that_cannot_be_used_are_named_without_a_secret_and_stop_nothing_else(
    found: Document | None, reason: str, said: str
) -> None:
    bench = working()
    before = template(bench)
    bench.server.documents.pop(USERS)
    if found is not None:
        bench.server.documents[USERS] = found
    given(bench, queues=queues(podTemplate={"labels": {"team": "tea"}}), proxy={})
    bench.server.documents[PATH]["spec"]["brokers"]["config"] = {"pull.count_max": "64"}
    bench.once()
    bench.once()
    assert bench.conditions()["QueuesReady"] == ("False", reason)
    assert bench.conditions()["Stalled"] == ("True", reason) and said in bench.said("Stalled")
    assert "spec.queues.users.secretName" in bench.said("Stalled") and "secret\n" not in bench.said("Stalled")
    assert template(bench) == before, "a pod that starts with these users would end at once"
    assert DEPLOYMENT.replace("queues", "proxy") in bench.server.documents, "the other door does not wait"
    assert "delete orders-b0-1" in bench.server.deeds, "brokers are rolled all the same"
    bench.server.documents[USERS] = callers(b"app secret\n")
    bench.once()
    assert template(bench)["metadata"]["labels"]["team"] == "tea"


def test_keys_belong_to_both_doors_and_stay_until_the_last_one_goes() -> None:
    bench = working()
    assert owners(bench) == {"orders-queues"}
    keys = bench.server.documents[KEYS]["data"]
    given(bench, proxy={})
    for _ in range(3):
        bench.once()
    assert owners(bench) == {"orders-queues", "orders-proxy"}
    uids = {each["name"]: each["uid"] for each in bench.server.documents[KEYS]["metadata"]["ownerReferences"]}
    assert uids["orders-proxy"] == bench.server.documents[PROXIES]["metadata"]["uid"]
    digests = {
        bench.server.documents[DEPLOYMENT.replace("queues", door)]["spec"]["template"]["metadata"]["annotations"][
            "gantrymq.io/secrets"
        ]
        for door in ("queues", "proxy")
    }
    assert len(digests) == 2 and bench.server.documents[KEYS]["data"] == keys
    given(bench, queues=None)
    bench.once()
    bench.once()
    assert not OURS & set(bench.server.documents) and PROXIES in bench.server.documents
    assert "QueuesReady" not in bench.conditions() and "queues" not in bench.server.documents[PATH]["status"]
    assert bench.server.documents[KEYS]["data"] == keys


def test_keys_that_a_person_made_get_no_owner() -> None:
    bench = Bench()
    kept = {
        "metadata": {"name": "orders-proxy-keys", "uid": "u"},
        "data": {"keys": base64.b64encode(b"k" * 32).decode()},
    }
    bench.server.documents |= {KEYS: kept, USERS: callers(b"app secret\n")}
    given(bench.works(), queues=queues())
    bench.once()
    bench.once()
    assert DEPLOYMENT in bench.server.documents and bench.server.documents[KEYS] == kept


def test_a_server_that_ends_again_and_again_is_named() -> None:
    bench = working()
    status = {"name": "queues", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    bench.server.documents[f"{PODS}/orders-queues-7f-1"]["status"]["containerStatuses"] = [status]
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", "Crashing") and "orders-queues-7f-1" in bench.said("Stalled")


def test_a_cluster_whose_volumes_go_with_it_does_not_wait_for_its_queues_forever() -> None:
    bench = working()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Delete"
    bench.once()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-22T01:00:00Z"
    bench.once()
    assert DEPLOYMENT not in bench.server.documents


def test_a_cluster_of_another_definition_whose_queues_have_no_users_is_read_for_its_failover() -> None:
    made = document()
    made["spec"]["queues"] = {"replicas": 2}
    reading = lenient.read_leniently(made)
    assert reading.faults == ("spec.queues.users is missing",) and reading.cluster.brokers.replicas == 3
