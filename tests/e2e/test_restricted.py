"""Every pod that the charts and the operator make is let in where pods are restricted, also with an assigned user id.

A namespace of a real API server enforces the pod security standard `restricted`; pods are offered to it as rehearsals.
OpenShift's own rules (SCC `restricted-v2`) ask for the same, and that no template names a user id or a volume's group.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import Image
from gantry_operator.desired import brokers, doors, nameservers
from gantry_operator.doors import own_part
from testkit.kube import clusters, renders
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.sources import ROOT

NAMESPACE = "restricted"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
TEMPLATES = ("Deployment", "Job", "StatefulSet")
IDENTITY = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}
BESIDE = {"name": "beside", "image": "vector:1"}
OPENSHIFT = ("--api-versions", "security.openshift.io/v1/SecurityContextConstraints")


@pytest.fixture(scope="module")
def strict(plane: ControlPlane) -> ControlPlane:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    about = {"name": NAMESPACE, "labels": labels}
    account = {"name": "default", "namespace": NAMESPACE}  # which a controller makes, where one runs
    for kind, metadata in (("Namespace", about), ("ServiceAccount", account)):
        plane.admin.apply(yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": metadata}))
    return plane


def of_the_charts(*flags: str) -> Iterator[tuple[str, Any]]:
    for name in ("operator", "cluster"):
        render = renders.ALL[name]
        for each in yaml.safe_load_all(render._replace(flags=(*render.flags, *flags)).text()):
            if each and each["kind"] in TEMPLATES:
                yield f"{name}: {each['metadata']['name']}", each["spec"]["template"]
            elif each and each["kind"] == "Pod":
                yield f"{name}: {each['metadata']['name']}", each


def of_the_operator(volume_group: int | None) -> Iterator[tuple[str, Any]]:
    document = clusters.document()
    beside = {"sidecars": [BESIDE], "initContainers": [BESIDE | {"name": "before"}]}
    for part in ("brokers", "nameserver"):
        document["spec"][part]["podTemplate"] |= beside
    document["spec"]["proxy"] = {"podTemplate": beside, "tls": {"secretName": "shop"}}
    document["spec"]["queues"] = {"podTemplate": beside, "users": {"secretName": "users"}}
    cluster, image = lenient.read(document), Image("image:1", "IfNotPresent", (), volume_group)
    shape = doors.DoorShape(1, "digest")
    made = [doors.deployment(cluster, each, image, shape, own_part(cluster, each.kind)) for each in cluster.doors]
    made += nameservers.objects(cluster, image)
    made += brokers.objects(next(cluster.groups()), image, brokers.Shape(1))
    for each in made:
        if each["kind"] in TEMPLATES:
            yield each["metadata"]["name"], each["spec"]["template"]


def offer(plane: ControlPlane, template: Any) -> None:
    spec = {key: value for key, value in template["spec"].items() if key != "serviceAccountName"}
    spec["automountServiceAccountToken"] = False
    spec["volumes"] = [*spec.get("volumes", ()), {"name": "store", "emptyDir": {}}]  # of the set's claim
    about = {"generateName": "offered-", "labels": template["metadata"].get("labels", {})}
    plane.admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})


def test_every_pod_is_let_in_by_a_restricted_namespace(strict: ControlPlane) -> None:
    offered = [*of_the_charts(), *of_the_operator(10001)]
    ours = {f"operator: {each}" for each in ("gantrymq", "gantrymq-crds", "gantrymq-leave", "gantrymq-test")}
    assert {"orders-b0", "orders-ns", "orders-proxy", "orders-queues"} <= dict(offered).keys()
    assert {"cluster: gantrymq-cluster-test", *ours} <= dict(offered).keys()
    for name, template in offered:
        try:
            offer(strict, template)
        except RefusedError as error:
            raise AssertionError(f"{name}: {error}") from error
    loose = copy.deepcopy(offered[-1][1])
    del loose["spec"]["containers"][-1]["securityContext"]
    with pytest.raises(RefusedError, match='violates PodSecurity "restricted'):
        offer(strict, loose)


def test_where_a_platform_assigns_ids_no_pod_names_one() -> None:
    offered = [*of_the_charts(*OPENSHIFT), *of_the_operator(None)]
    for name, template in offered:
        spec = template["spec"]
        for security in (spec["securityContext"], *(each["securityContext"] for each in spec["containers"])):
            assert not IDENTITY & security.keys(), name
    example = str(ROOT / "charts/gantrymq-cluster/examples/spark.yaml")
    assert "runAsUser" not in renders.Render("gantrymq-cluster", ("-f", example, *OPENSHIFT)).text()
    (operator,) = dict(offered)["operator: gantrymq"]["spec"]["containers"]
    assert {"name": "GANTRY_OPERATOR_VOLUME_GROUP", "value": "platform"} in operator["env"]
