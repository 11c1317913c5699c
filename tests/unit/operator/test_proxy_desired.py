"""What the operator builds for proxies: restricted pods, a rolling update that keeps serving, time to drain."""

from __future__ import annotations

from typing import Any

import pytest

from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import BrokerCluster, Image
from gantry_operator.desired import doors
from gantry_operator.doors import own_part
from testkit.kube.clusters import document

Document = dict[str, Any]
IMAGE = Image("image:1", "IfNotPresent", ("regcred",), 10001)


def cluster(**proxy: object) -> BrokerCluster:
    made = document()
    made["spec"]["proxy"] = proxy
    return lenient.read(made)


def deployment(replicas: int = 2, **proxy: object) -> Document:
    of = cluster(**proxy)
    (door,) = of.doors
    return doors.deployment(of, door, IMAGE, doors.DoorShape(replicas, "digest"), own_part(of, door.kind))


def pod(**proxy: object) -> Document:
    found: Document = deployment(**proxy)["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_a_rolling_update_never_has_less_than_all_but_one_ready_and_one_of_one(replicas: int) -> None:
    strategy = deployment(replicas)["spec"]["strategy"]
    assert strategy["type"] == "RollingUpdate"
    assert replicas - strategy["rollingUpdate"]["maxUnavailable"] >= max(1, replicas - 1)
    assert strategy["rollingUpdate"]["maxSurge"] == 1, "else no pod of one could be replaced"


def test_a_proxy_has_the_time_to_leave_the_service_and_to_drain() -> None:
    made = pod()
    (server,) = made["containers"]
    unlisted_s = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert unlisted_s > 0 and made["terminationGracePeriodSeconds"] >= unlisted_s + 30


def test_it_has_probes_and_no_rights_and_writes_nothing_but_scratch() -> None:
    made = pod()
    (server,) = made["containers"]
    paths = {name: server[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert made["automountServiceAccountToken"] is False and "serviceAccountName" not in made
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
    }  # fmt: skip
    assert made["securityContext"]["runAsNonRoot"] is True and made["imagePullSecrets"] == [{"name": "regcred"}]


def test_it_is_told_where_its_files_are() -> None:
    made = pod(tls={"secretName": "shop"})
    (server,), (volume, _) = made["containers"], made["volumes"]
    mount, _ = server["volumeMounts"]
    paths = [each["path"] for source in volume["projected"]["sources"] for each in source["secret"]["items"]]
    told = dict(zip(server["args"][1::2], server["args"][2::2], strict=True))
    files = {told[name] for name in ("--handle-key-file", "--tls-cert", "--tls-key")}
    assert mount["name"] == volume["name"] and files == {f"{mount['mountPath']}/{path}" for path in paths}
    assert told["--namesrv"] == "orders-ns-0.orders-ns.messaging.svc:9876;orders-ns-1.orders-ns.messaging.svc:9876"
    ports = {each["name"]: str(each["containerPort"]) for each in server["ports"]}
    assert ports == {"grpc": told["--grpc-port"], "http": told["--http-port"]}


def test_without_a_certificate_it_makes_one_where_it_may_write() -> None:
    (server,), (volume, scratch) = pod()["containers"], pod()["volumes"]
    told = dict(zip(server["args"][1::2], server["args"][2::2], strict=True))
    assert not {"--tls-cert", "--tls-key"} & told.keys() and len(volume["projected"]["sources"]) == 1
    (writable,) = [each["mountPath"] for each in server["volumeMounts"] if each["name"] == scratch["name"]]
    assert scratch["emptyDir"] == {} and told["--tls-self-signed"].startswith(f"{writable}/")


def test_every_object_goes_with_the_cluster_and_the_secret_with_the_service() -> None:
    of = cluster()
    (door,) = of.doors
    made = [*doors.objects(of, door), deployment()]
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in made} == {"u-1"}
    owner = {"apiVersion": "v1", "kind": "Service", "name": "orders-proxy", "uid": "u-service"}
    secret = doors.secret(of, [owner], "a2V5")
    assert secret["metadata"]["ownerReferences"] == [owner]
    names = {(each["kind"], each["metadata"]["name"]) for each in [*made, secret]}
    assert len(names) == 4 and all(each["metadata"]["namespace"] == "messaging" for each in [*made, secret])


def test_replicas_change_no_template_and_another_secret_does() -> None:
    of = cluster()
    (door,) = of.doors
    one, more, other = (
        doors.deployment(of, door, IMAGE, doors.DoorShape(count, digest), own_part(of, door.kind))["spec"]["template"]
        for count, digest in ((1, "a"), (5, "a"), (1, "b"))
    )
    assert one == more != other
