"""HTTP queues on a real API server, made by the operator's own process and account: they come, change and go."""

from __future__ import annotations

import base64
import re

import pytest
import yaml

from e2e.test_leader import CLUSTERS, home, is_there, kinds, made  # noqa: F401
from e2e.test_proxies import CORE, Shop, operator  # noqa: F401
from testkit.kube.controlplane import ControlPlane
from testkit.kube.operators import Replica
from testkit.kube.registers import NAMESPACE, fresh_name
from testkit.sources import ROOT

GROUPS = {"Ingress": "networking.k8s.io/v1", "HorizontalPodAutoscaler": "autoscaling/v2"}


@pytest.fixture
def shop(home: ControlPlane, operator: Replica) -> Shop:  # noqa: F811
    found = Shop(home, made(home), operator, "queues")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{found.name}-callers", "namespace": NAMESPACE},
    }
    home.admin.create(f"{CORE}/secrets", secret | {"stringData": {"users": "app secret\n"}})
    found.wants({"users": {"secretName": f"{found.name}-callers"}})
    found.until(found.is_all_there, "the servers are made")
    return found


def owners(shop: Shop) -> set[str]:
    return {each["name"] for each in shop.get(shop.secret)["metadata"]["ownerReferences"]}


def test_they_come_follow_their_users_and_go_while_proxies_keep_the_keys(shop: Shop) -> None:
    assert owners(shop) == {f"{shop.name}-queues"}
    keys, template = shop.get(shop.secret)["data"], shop.get(shop.deployment)["spec"]["template"]
    shop.until(lambda: shop.get(shop.path)["status"].get("queues"), "the status has them")
    assert shop.get(shop.path)["status"]["queues"] == {
        "replicas": 2, "ready": 0, "endpoint": f"{shop.name}-queues.{NAMESPACE}:9407",
    }  # fmt: skip
    users = f"{CORE}/secrets/{shop.name}-callers"
    shop.plane.admin.merge(users, {"data": {"users": base64.b64encode(b"app\n").decode()}})
    shop.wants({}, proxy={})
    shop.until(lambda: shop.condition("QueuesReady")[1] == "SecretInvalid", "the wrong line is told")
    assert "line 1" in shop.condition("Stalled")[2]
    shop.plane.admin.merge(users, {"data": {"users": base64.b64encode(b"app secret\nmore s2\n").decode()}})
    shop.wants({"service": {"type": "NodePort"}})
    shop.until(lambda: shop.get(shop.service)["spec"]["type"] == "NodePort", "the Service follows")
    shop.until(lambda: shop.condition("Stalled")[0] == "False", "nothing is wrong any more")
    assert shop.get(shop.deployment)["spec"]["template"] == template, "servers read their users again by themselves"
    shop.until(lambda: owners(shop) == {f"{shop.name}-queues", f"{shop.name}-proxy"}, "the keys belong to both")
    shop.wants(None)
    shop.until(shop.is_gone, "they are gone")
    shop.until(lambda: "queues" not in shop.get(shop.path)["status"], "the status has none")
    assert shop.condition("QueuesReady") == ("", "", "") and shop.condition("ProxyReady")[0] == "False"
    assert is_there(shop.plane, f"{CORE}/services/{shop.name}-proxy") and shop.get(shop.secret)["data"] == keys


def test_ingress_and_autoscaler_of_the_document_are_taken(shop: Shop) -> None:
    text = (ROOT / "operator/docs/queues.md").read_text()
    examples = [
        each for fence in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for each in yaml.safe_load_all(fence)
    ]
    assert [each["kind"] for each in examples] == [
        "BrokerCluster",
        "Ingress",
        "BrokerCluster",
        "HorizontalPodAutoscaler",
    ]
    for each in examples:
        each["metadata"]["namespace"] = NAMESPACE
        if each["kind"] == "BrokerCluster":
            each["metadata"]["name"] = fresh_name()
            shop.plane.admin.create(f"{CLUSTERS}?dryRun=All", each)
            continue
        plural = {"Ingress": "ingresses"}.get(each["kind"], "horizontalpodautoscalers")
        shop.plane.admin.create(f"/apis/{GROUPS[each['kind']]}/namespaces/{NAMESPACE}/{plural}?dryRun=All", each)
    backend = examples[1]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    (port,) = shop.get(shop.service)["spec"]["ports"]
    assert backend == {"name": "orders-queues", "port": {"name": port["name"]}}
    shop.plane.admin.merge(f"{shop.deployment}/scale", {"spec": {"replicas": 7}})
    shop.until(lambda: shop.get(shop.path)["status"]["queues"]["replicas"] == 7, "the autoscaler's number is taken")
