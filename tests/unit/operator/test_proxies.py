"""Proxies in passes: how they come, what is told of them, what cannot be used, and how they go."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from gantry_operator.api.wishes import PAUSE
from gantry_operator.reconcile import LATER_S, SOON_S
from gantry_operator.settings import OnUpgrade
from testkit.kube.operatorbench import PATH, PODS, Bench

Document = dict[str, Any]
DEPLOYMENT = "/apis/apps/v1/namespaces/messaging/deployments/orders-proxy"
SERVICE = "/api/v1/namespaces/messaging/services/orders-proxy"
KEYS = "/api/v1/namespaces/messaging/secrets/orders-proxy-keys"
SHOP = "/api/v1/namespaces/messaging/secrets/shop"
OURS = {
    DEPLOYMENT, SERVICE, "/apis/policy/v1/namespaces/messaging/poddisruptionbudgets/orders-proxy",
    "/apis/networking.k8s.io/v1/namespaces/messaging/networkpolicies/orders-proxy",
}  # fmt: skip


def with_proxies(bench: Bench, **proxy: object) -> Bench:
    """A person adds `spec.proxy`, or changes it."""
    bench.server.documents[PATH]["spec"]["proxy"] = proxy
    bench.server.documents[PATH]["metadata"]["generation"] += 1
    return bench


def working(**proxy: object) -> Bench:
    """A cluster with proxies that are ready."""
    bench = with_proxies(Bench().works(), **proxy)
    bench.once()
    bench.once()
    bench.serves("proxy")
    bench.once()
    bench.server.writes.clear()
    return bench


def keys(bench: Bench) -> bytes:
    return base64.b64decode(bench.server.documents[KEYS]["data"]["keys"])


def secret(**data: bytes) -> Document:
    about = {"name": "shop", "uid": "u-shop"}
    return {"metadata": about, "data": {name: base64.b64encode(each).decode() for name, each in data.items()}}


def certificate() -> Document:
    pem = b"-----BEGIN CERTIFICATE-----\n"
    return secret(**{"tls.crt": pem, "tls.key": pem})


def digest(bench: Bench) -> str:
    template = bench.server.documents[DEPLOYMENT]["spec"]["template"]
    return str(template["metadata"]["annotations"]["gantrymq.io/secrets"])


def test_a_cluster_without_the_field_has_no_proxies_and_is_not_asked_for_any() -> None:
    bench = Bench().works()
    bench.server.reads.clear()
    bench.once()
    assert not [each for each in bench.server.reads if "proxy" in each or "deployments" in each]
    assert "ProxyReady" not in bench.conditions() and "proxy" not in bench.server.documents[PATH]["status"]


def test_the_field_brings_them_and_pods_come_after_their_keys() -> None:
    bench = with_proxies(Bench().works())
    assert bench.once() == SOON_S
    assert OURS - {DEPLOYMENT} <= set(bench.server.documents) and DEPLOYMENT not in bench.server.documents
    assert bench.conditions()["ProxyReady"] == ("False", "NotApplied")
    bench.server.writes.clear()
    assert bench.once() == SOON_S
    assert bench.server.deeds == ["create Secret", "apply Deployment"]
    (owner,) = bench.server.documents[KEYS]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Service", bench.server.documents[SERVICE]["metadata"]["uid"])
    assert len(keys(bench)) == 64
    assert bench.once() == SOON_S and bench.conditions()["ProxyReady"] == ("False", "RollingUpdate")
    bench.serves("proxy", ready=0)
    assert bench.once() == SOON_S
    assert bench.conditions()["Ready"] == ("False", "NoProxy")
    bench.serves("proxy", ready=1)
    assert bench.once() == SOON_S
    assert bench.conditions()["ProxyReady"] == ("False", "PodsNotReady") and bench.conditions()["Ready"][0] == "True"
    bench.serves("proxy")
    bench.once()
    assert bench.conditions()["ProxyReady"] == ("True", "AllReady")
    assert bench.server.documents[PATH]["status"]["proxy"] == {
        "replicas": 2, "ready": 2, "endpoint": "orders-proxy.messaging:8081",
    }  # fmt: skip
    bench.server.writes.clear()
    assert bench.once() == LATER_S and bench.server.writes == [], "unchanged proxies cost no write"


def test_without_the_field_they_go_the_service_last_and_with_it_its_secret() -> None:
    bench = working()
    del bench.server.documents[PATH]["spec"]["proxy"]
    bench.once()
    assert DEPLOYMENT not in bench.server.documents and SERVICE in bench.server.documents
    bench.once()
    assert not OURS & set(bench.server.documents)
    assert "ProxyReady" not in bench.conditions() and "proxy" not in bench.server.documents[PATH]["status"]


def test_a_service_of_that_name_that_somebody_else_made_stays() -> None:
    bench = Bench()
    labels = {"gantrymq.io/cluster": "orders", "gantrymq.io/component": "proxy"}
    about = {"namespace": "messaging", "name": "orders-proxy", "uid": "u", "labels": labels}
    bench.server.documents[SERVICE] = {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {}}
    bench.works()
    assert SERVICE in bench.server.documents


def test_what_somebody_changed_is_set_back() -> None:
    bench = working(replicas=2)
    bench.server.documents[DEPLOYMENT]["spec"]["replicas"] = 7
    bench.server.documents[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    bench.server.documents[SERVICE]["spec"]["type"] = "LoadBalancer"
    bench.once()
    assert sorted(bench.server.deeds)[:2] == ["apply Deployment", "apply Service"]
    assert bench.server.documents[DEPLOYMENT]["spec"]["replicas"] == 2
    assert ("Warning", "DriftRepaired") in bench.server.events()


def test_without_replicas_an_autoscaler_decides() -> None:
    bench = working()
    bench.server.documents[DEPLOYMENT]["spec"]["replicas"] = 7
    bench.once()
    bench.once()
    assert bench.server.documents[DEPLOYMENT]["spec"]["replicas"] == 7
    assert ("Warning", "DriftRepaired") not in bench.server.events()
    assert bench.server.documents[PATH]["status"]["proxy"]["replicas"] == 7


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (None, "SecretMissing", "there is no Secret shop in this namespace"),
        (secret(**{"tls.key": b"-----BEGIN "}), "SecretInvalid", "no PEM in its field tls.crt"),
        (secret(**{"tls.crt": b"-----BEGIN ", "tls.key": b"x"}), "SecretInvalid", "no PEM in its field tls.key"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named_and_stops_nothing_else(
    found: Document | None, reason: str, said: str
) -> None:
    bench = working()
    before = copy.deepcopy(bench.server.documents[DEPLOYMENT])
    with_proxies(bench, tls={"secretName": "shop"}, service={"type": "NodePort"})
    if found is not None:
        bench.server.documents[SHOP] = found
    bench.server.documents[PATH]["spec"]["brokers"]["config"] = {"pull.count_max": "64"}
    assert bench.once() is not None
    assert bench.conditions()["ProxyReady"] == ("False", reason)
    assert bench.conditions()["Stalled"] == ("True", reason) and said in bench.said("Stalled")
    assert bench.server.documents[DEPLOYMENT] == before, "running proxies keep what they have"
    assert bench.server.documents[SERVICE]["spec"]["type"] == "NodePort"
    assert "delete orders-b0-1" in bench.server.deeds, "brokers are rolled all the same"
    bench.server.documents[SHOP] = certificate()
    bench.once()
    assert bench.conditions()["Stalled"][0] == "False"
    assert "--tls-cert" in bench.server.documents[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["args"]


def test_another_certificate_or_key_is_another_template() -> None:
    bench = Bench()
    bench.server.documents[SHOP] = certificate()
    bench = with_proxies(bench.works(), tls={"secretName": "shop"})
    for _ in range(3):
        bench.once()
    first = digest(bench)
    bench.server.documents[SHOP]["data"]["tls.crt"] = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nnew").decode()
    bench.once()
    second = digest(bench)
    both = base64.b64encode(keys(bench) + b"\n" + b"k" * 32).decode()
    bench.server.documents[KEYS]["data"]["keys"] = both
    bench.once()
    assert len({first, second, digest(bench)}) == 3
    assert bench.server.documents[KEYS]["data"]["keys"] == both, "the operator never changes them"


@pytest.mark.parametrize(("given", "said"), [(b"", "is empty"), (b"short", "5 bytes"), (b"k" * 16 + b"\n", "")])
def test_keys_that_cannot_be_used_are_named_and_replace_no_pod(given: bytes, said: str) -> None:
    bench = working()
    before = digest(bench)
    bench.server.documents[KEYS]["data"]["keys"] = base64.b64encode(b"# ours\n" + given).decode()
    bench.once()
    assert (digest(bench) == before) is bool(said)
    if said:
        assert bench.conditions()["ProxyReady"] == ("False", "SecretInvalid") and said in bench.said("Stalled")


def test_keys_that_were_deleted_come_back_as_they_were() -> None:
    bench = working()
    before = keys(bench)
    del bench.server.documents[KEYS]
    bench.once()
    assert bench.server.deeds == ["create Secret"] and keys(bench) == before
    bench.once()
    assert bench.conditions()["ProxyReady"][0] == "True" and bench.server.deeds == ["create Secret"]


def test_what_the_api_server_refuses_is_named_and_stops_nothing_else() -> None:
    bench = working()
    with_proxies(bench, workers=3)
    bench.server.refuses["Deployment"] = 403
    bench.server.documents[PATH]["spec"]["brokers"]["config"] = {"pull.count_max": "64"}
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", "Refused") and "Deployment orders-proxy" in bench.said("Stalled")
    assert "delete orders-b0-1" in bench.server.deeds
    bench.server.refuses.clear()
    bench.server.unread[DEPLOYMENT] = 403
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", "Refused") and "Deployment orders-proxy" in bench.said("Stalled")


def test_a_quota_that_refuses_pods_is_told() -> None:
    bench = working()
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: compute"}
    bench.server.documents[DEPLOYMENT]["status"]["conditions"] = [failure]
    bench.once()
    assert bench.conditions()["ProxyReady"] == ("False", "PodsRefused")
    assert "exceeded quota: compute" in bench.said("Stalled")


def test_a_load_balancer_is_waited_for_and_its_address_told() -> None:
    bench = working(service={"type": "LoadBalancer"})
    bench.once()
    assert bench.conditions()["ProxyReady"] == ("False", "NoAddress") and bench.conditions()["Ready"][0] == "True"
    status = {"loadBalancer": {"ingress": [{"ip": "fd00::7"}]}}
    bench.server.documents[SERVICE] |= {"status": status}
    bench.server.documents[SERVICE]["spec"]["ports"][0]["nodePort"] = 31234
    bench.once()
    told = bench.server.documents[PATH]["status"]["proxy"]
    assert bench.conditions()["ProxyReady"][0] == "True"
    assert (told["endpoint"], told["nodePort"]) == ("[fd00::7]:8081", 31234)


def test_a_proxy_that_ends_again_and_again_is_named() -> None:
    bench = working()
    status = {"name": "proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    bench.server.documents[f"{PODS}/orders-proxy-7f-1"]["status"]["containerStatuses"] = [status]
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", "Crashing") and "orders-proxy-7f-1" in bench.said("Stalled")


def test_a_paused_cluster_gets_none_and_says_what_waits() -> None:
    bench = Bench().works()
    bench.server.annotate(PATH, **{PAUSE: "true"})
    with_proxies(bench)
    bench.once()
    bench.once()
    assert not OURS & set(bench.server.documents) and KEYS not in bench.server.documents
    assert "Service orders-proxy" in bench.said("Reconciling")


def test_while_an_image_waits_proxies_keep_theirs_and_follow_what_people_change() -> None:
    bench = working()
    bench.upgrade("image:2", OnUpgrade.NONE)
    bench.once()
    assert "apply Deployment" not in bench.server.deeds
    with_proxies(bench, workers=2)
    bench.once()
    (server,) = bench.server.documents[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    assert server["image"] == "image:1" and server["args"][10] == "2"


def test_a_cluster_whose_volumes_go_with_it_does_not_wait_for_its_proxies_forever() -> None:
    bench = working()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Delete"
    bench.once()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-22T01:00:00Z"
    bench.once()
    assert DEPLOYMENT not in bench.server.documents
