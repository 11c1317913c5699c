"""Proxies on a real API server, made by the operator's own process and account: they come, change, are repaired, go."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from e2e.test_leader import CLUSTERS, begun, home, is_there, kinds, made  # noqa: F401
from testkit.kube.api import Document
from testkit.kube.controlplane import ControlPlane
from testkit.kube.operators import Replica
from testkit.kube.registers import NAMESPACE, fresh_name
from testkit.pairplay import until
from testkit.sources import ROOT

CORE, APPS = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
STRATEGIC = "application/strategic-merge-patch+json"
PEM, RENEWED = (base64.b64encode(b"-----BEGIN CERTIFICATE-----\n" + each).decode() for each in (b"", b"renewed"))


class Shop:
    """One cluster with proxies, or with another door, and what a person does to it."""

    def __init__(self, plane: ControlPlane, name: str, operator: Replica, door: str = "proxy") -> None:
        self.plane, self.name, self._operator, self.door = plane, name, operator, door
        self.path = f"{CLUSTERS}/{name}"
        self.deployment, self.service = f"{APPS}/deployments/{name}-{door}", f"{CORE}/services/{name}-{door}"
        self.secret = f"{CORE}/secrets/{name}-proxy-keys"
        self.rest = [f"{BUDGETS}/{name}-{door}", f"{POLICIES}/{name}-{door}"]

    def wants(self, door: Document | None, **spec: object) -> None:
        self.plane.admin.merge(self.path, {"spec": {self.door: door, **spec}})

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Until it is so; an operator that lost its Lease on a busy machine is started again, as a kubelet would."""

        def is_so() -> object:
            self._operator.revive()
            return holds()

        until(is_so, what)

    def get(self, path: str) -> Document:
        return self.plane.admin.get(path)

    def is_all_there(self) -> bool:
        return all(is_there(self.plane, each) for each in (self.deployment, self.service, self.secret, *self.rest))

    def is_gone(self) -> bool:
        """But for the Secret: no garbage collector runs here, and the operator may not delete it."""
        return not any(is_there(self.plane, each) for each in (self.deployment, self.service, *self.rest))

    def server(self) -> Document:
        (found,) = self.get(self.deployment)["spec"]["template"]["spec"]["containers"]
        return dict(found)

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = self.get(self.path).get("status", {}).get("conditions", [])
        told = [(each["status"], each["reason"], each["message"]) for each in found if each["type"] == kind]
        return told[0] if told else ("", "", "")


@pytest.fixture
def operator(home: ControlPlane, tmp_path: Path) -> Iterator[Replica]:  # noqa: F811
    with Replica(home, tmp_path, "a") as only:
        begun(only)
        until(only.leads, "it leads")
        yield only
        assert not [each for each in only.writes() if each.status == 403], "it has every right that it needs"


@pytest.fixture
def shop(home: ControlPlane, operator: Replica) -> Shop:  # noqa: F811
    found = Shop(home, made(home), operator)
    found.wants({})
    found.until(found.is_all_there, "the proxies are made")
    return found


def test_they_come_are_repaired_and_go_without_a_write_too_many(shop: Shop, operator: Replica) -> None:
    (owner,) = shop.get(shop.secret)["metadata"]["ownerReferences"]
    assert owner["uid"] == shop.get(shop.service)["metadata"]["uid"]
    keys = shop.get(shop.secret)["data"]
    shop.until(lambda: shop.get(shop.path)["status"].get("proxy"), "the status has them")
    assert shop.get(shop.path)["status"]["proxy"] == {
        "replicas": 2, "ready": 0, "endpoint": f"{shop.name}-proxy.{NAMESPACE}:8081",
    }  # fmt: skip

    def writes() -> int:
        return sum(each.name == f"{shop.name}-proxy" for each in operator.writes())

    before = writes()
    shop.plane.admin.ask("PATCH", f"{shop.service}?fieldManager=kubectl-edit",
                         {"spec": {"externalIPs": ["1.2.3.4"]}}, STRATEGIC)  # fmt: skip
    shop.until(lambda: "externalIPs" not in shop.get(shop.service)["spec"], "the Service is set back")
    assert writes() - before <= 2, "defaults of the API server are no difference: only the Service was applied"
    shop.wants({"workers": 3, "replicas": 5})
    shop.until(lambda: shop.server()["args"][10] == "3", "the template follows")
    assert shop.get(shop.deployment)["spec"]["replicas"] == 5
    shop.plane.admin.merge(f"{shop.deployment}/scale", {"spec": {"replicas": 1}})
    shop.until(lambda: shop.get(shop.deployment)["spec"]["replicas"] == 5, "replicas are set back")
    assert shop.get(shop.secret)["data"] == keys
    shop.wants(None)
    shop.until(shop.is_gone, "they are gone")
    shop.until(lambda: "proxy" not in shop.get(shop.path)["status"], "the status has none")
    assert shop.condition("ProxyReady") == ("", "", "")


def test_a_service_changes_its_type_both_ways_and_a_load_balancer_is_told(shop: Shop) -> None:
    for kind in ("NodePort", "LoadBalancer", "ClusterIP", "LoadBalancer"):
        shop.wants({"service": {"type": kind, "annotations": {"example.com/inner": "yes"}}})
        shop.until(lambda: shop.get(shop.service)["spec"]["type"] == kind, kind)  # noqa: B023
        (port,) = shop.get(shop.service)["spec"]["ports"]
        assert (port["port"], "nodePort" in port) == (8081, kind != "ClusterIP")
        is_open = kind != "ClusterIP"
        shop.until(lambda: ("from" not in shop.get(shop.rest[1])["spec"]["ingress"][0]) is is_open, "and the policy")  # noqa: B023
    assert shop.get(shop.service)["metadata"]["annotations"]["example.com/inner"] == "yes"
    shop.until(lambda: shop.get(shop.path)["status"]["proxy"]["endpoint"] == "", "no address yet")
    address = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}
    shop.plane.admin.merge(f"{shop.service}/status", address)
    shop.until(lambda: shop.get(shop.path)["status"]["proxy"]["endpoint"] == "192.0.2.7:8081", "the address is told")
    assert shop.get(shop.path)["status"]["proxy"]["nodePort"]


def test_a_bad_certificate_is_named_and_stops_nothing_else(shop: Shop) -> None:
    before = shop.get(shop.deployment)["metadata"]["generation"]
    shop.wants({"tls": {"secretName": f"{shop.name}-cert"}}, brokers={"config": {"pull.count_max": "77"}})
    shop.until(lambda: shop.condition("Stalled")[1] == "SecretMissing", "the Secret is missed")
    assert f"spec.proxy.tls.secretName: there is no Secret {shop.name}-cert" in shop.condition("Stalled")[2]
    configs = f"{CORE}/configmaps?labelSelector=gantrymq.io/cluster%3D{shop.name}"
    shop.until(lambda: "77" in str(shop.get(configs)["items"]), "brokers are changed all the same")
    assert shop.get(shop.deployment)["metadata"]["generation"] == before
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
    secret = kind | {"metadata": {"name": f"{shop.name}-cert", "namespace": NAMESPACE}}
    shop.plane.admin.create(f"{CORE}/secrets", secret | {"data": {"tls.crt": PEM, "tls.key": ""}})
    shop.until(lambda: shop.condition("ProxyReady")[1] == "SecretInvalid", "it is read")
    shop.plane.admin.merge(f"{CORE}/secrets/{shop.name}-cert", {"data": {"tls.key": PEM}})
    shop.until(lambda: "--tls-cert" in shop.server()["args"], "the certificate is used")
    shop.until(lambda: shop.condition("Stalled")[0] == "False", "nothing is wrong any more")
    digest = shop.get(shop.deployment)["spec"]["template"]["metadata"]["annotations"]["gantrymq.io/secrets"]
    shop.plane.admin.merge(f"{CORE}/secrets/{shop.name}-cert", {"data": {"tls.crt": RENEWED}})

    def renewed() -> bool:
        template = shop.get(shop.deployment)["spec"]["template"]
        return bool(template["metadata"]["annotations"]["gantrymq.io/secrets"] != digest)

    shop.until(renewed, "another certificate is another template")


def test_the_autoscaler_of_the_document_is_taken_and_decides(shop: Shop) -> None:
    text = (ROOT / "operator/docs/proxies.md").read_text()
    fences = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    examples = [each for fence in fences for each in yaml.safe_load_all(fence)]
    assert [each["kind"] for each in examples] == ["BrokerCluster", "BrokerCluster", "HorizontalPodAutoscaler"]
    for each in examples[:2]:
        each["metadata"] = {"name": fresh_name(), "namespace": NAMESPACE}
        shop.plane.admin.create(f"{CLUSTERS}?dryRun=All", each)
    scaler = examples[2]
    assert scaler["spec"]["scaleTargetRef"]["name"] == "orders-proxy"
    scaler["metadata"]["namespace"] = NAMESPACE
    shop.plane.admin.create(f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers?dryRun=All", scaler)
    shop.plane.admin.merge(f"{shop.deployment}/scale", {"spec": {"replicas": 7}})
    shop.until(lambda: shop.get(shop.path)["status"]["proxy"]["replicas"] == 7, "the number is taken")
    assert shop.get(shop.deployment)["spec"]["replicas"] == 7


def test_an_operator_that_is_started_again_keeps_the_keys_and_the_template(
    shop: Shop, operator: Replica, tmp_path: Path
) -> None:
    keys, before = shop.get(shop.secret)["data"], shop.get(shop.deployment)["spec"]
    operator.kill()
    shop.plane.admin.merge(shop.path, {"metadata": {"labels": {"again": "yes"}}})
    with Replica(shop.plane, tmp_path, "b") as other:
        begun(other)
        until(other.leads, "another one leads")
        shop.wants({}, brokers={"config": {"pull.count_max": "78"}})
        configs = f"{CORE}/configmaps?labelSelector=gantrymq.io/cluster%3D{shop.name}"
        until(lambda: "78" in str(shop.get(configs)["items"]), "it works")
        assert shop.get(shop.secret)["data"] == keys
        assert shop.get(shop.deployment)["spec"] == before
