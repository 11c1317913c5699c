"""BrokerClusters and the operator's rights on a real API server: defaults, refusals, and what its account may do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gantry_operator.api.schema import FILE, definition
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import NAMESPACE, fresh_name
from testkit.pairplay import until
from testkit.sources import ROOT

CLUSTERS = f"/apis/gantrymq.io/v1alpha1/namespaces/{NAMESPACE}/brokerclusters"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPERATOR = "system:serviceaccount:default:gantrymq"


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> ControlPlane:
    plane.admin.apply((ROOT / "crds" / FILE).read_text())
    until(lambda: is_served(plane), "the kind is served")
    return plane


def is_served(plane: ControlPlane) -> bool:
    try:
        return str(plane.admin.get(CLUSTERS)["kind"]) == "BrokerClusterList"
    except RefusedError:
        return False


def wanted(spec: str) -> dict[str, Any]:
    metadata = {"name": fresh_name(), "namespace": NAMESPACE}
    kind = {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster"}
    return kind | {"metadata": metadata, "spec": yaml.safe_load(spec)}


REFUSED = [
    ("brokers: {groups: 0}", "spec.brokers.groups"),
    ("brokers: {groups: 65}", "spec.brokers.groups"),
    ("brokers: {replicasPerGroup: 6}", "spec.brokers.replicasPerGroup"),
    ("brokers: {replicasPerGroup: 2}", "spec.brokers.replicasPerGroup: more than"),
    ("brokers: {replication: {minInSync: 3}}", "spec.brokers.replicasPerGroup: more than"),
    ("brokers: {replication: {minInSync: 1}}", "with 1, SYNC_MASTER would acknowledge"),
    ("brokers: {profile: fast, replication: {minInSync: 2}}", "more than 1 is for SYNC_MASTER"),
    ("brokers: {profile: fast, replicasPerGroup: 1, replication: {mode: SYNC_MASTER}}", "PerGroup: more than"),
    ("brokers: {replication: {mode: SYNC}}", "spec.brokers.replication.mode"),
    ("brokers: {replication: {maxLag: 0s}}", "spec.brokers.replication.maxLag"),
    ("brokers: {replication: {maxLag: 20m}}", "expected 1s to 10m"),
    ("brokers: {replication: {ackTimeout: soon}}", "spec.brokers.replication.ackTimeout"),
    ("brokers: {flush: {interval: 1s}}", "spec.brokers.flush.interval: only of flush mode ASYNC"),
    ("brokers: {profile: fast, flush: {interval: 2m}}", "expected 1ms to 1m"),
    ("brokers: {flush: {mode: NEVER}}", "spec.brokers.flush.mode"),
    ("brokers: {failover: {suspectAfter: 15s}}", "suspectAfter: less than spec.brokers.failover.leaseDuration"),
    ("brokers: {failover: {timers: fast, leaseDuration: 3s, suspectAfter: 4s}}", "suspectAfter: less than"),
    ("brokers: {failover: {leaseDuration: 2s}}", "expected 3s to 60m"),
    ("brokers: {failover: {mode: Never}}", "spec.brokers.failover.mode"),
    ("brokers: {failover: {fastPath: Always}}", "spec.brokers.failover.fastPath"),
    ("brokers: {failover: {unclean: Always}}", "spec.brokers.failover.unclean"),
    ("brokers: {failover: {afterTotalPowerLoss: Never}}", "spec.brokers.failover.afterTotalPowerLoss"),
    ("brokers: {disruption: {handoverTimeout: 1h}}", "spec.brokers.disruption.handoverTimeout"),
    ("brokers: {storage: {accessMode: ReadWriteMany}}", "spec.brokers.storage.accessMode"),
    ("brokers: {podTemplate: {labels: {gantrymq.io/role: master}}}", "podTemplate.labels: those of gantrymq.io"),
    ("nameserver: {podTemplate: {annotations: {gantrymq.io/terms: x}}}", "podTemplate.annotations: those of"),
    ("brokers: {podTemplate: {env: [{name: GANTRY_ROLE, value: x}]}}", "GANTRY_ variables and POD_NAME"),
    ("brokers: {podTemplate: {spread: [{maxSkew: 1}]}}", "topologyKey"),
    ("brokers: {podTemplate: {tolerations: [{effect: Never}]}}", "tolerations"),
    ("brokers: {podTemplate: {env: [{name: A, value: x, valueFrom: {}}]}}", "either a value or valueFrom"),
    ("brokers: {podTemplate: {sidecars: [{name: broker, image: x}]}}", "podTemplate.sidecars: broker and nameserver"),
    ("brokers: {podTemplate: {sidecars: [{name: beside}]}}", "sidecars.*image"),
    ("nameserver: {podTemplate: {initContainers: [{name: nameserver, image: x}]}}", "initContainers: broker and"),
    ("brokers: {podTemplate: {volumes: [{name: store, emptyDir: {}}]}}", "podTemplate.volumes: store, config, secret"),
    *(
        (f"nameserver: {{podTemplate: {{volumeMounts: [{{name: x, mountPath: {path}}}]}}}}", "Mounts: below /data")
        for path in ("/data", "/data/store", "/etc", "/etc/gantrymq/secret", "/x/../data")
    ),
    ("brokers: {podTemplate: {securityContext: {runAsUser: 0}}}", "securityContext.runAsUser"),
    ("brokers: {podTemplate: {securityContext: {runAsNonRoot: false}}}", "securityContext.runAsNonRoot"),
    ("deletionPolicy: Keep", "spec.deletionPolicy"),
    ("imagePullPolicy: Sometimes", "spec.imagePullPolicy"),
    ("brokers: {config: {store.flush_interval_ms: '1'}}", "the operator itself sets names"),
    ("brokers: {profile: safe}", "spec.brokers.profile"),
    ("brokers: {failover: {timers: instant}}", "spec.brokers.failover.timers"),
    ("brokers: {antiAffinity: Never}", "spec.brokers.antiAffinity"),
    ("brokers: {storage: {size: large}}", "spec.brokers.storage.size"),
    ("brokers: {config: {replication.ordinal: '1'}}", "the operator itself sets names"),
    ("brokers: {config: {store.root: /elsewhere}}", "the operator itself sets names"),
    ("nameserver: {replicas: 0}", "spec.nameserver.replicas"),
    ("proxy: {replicas: 0}", "spec.proxy.replicas"),
    ("queues: {}", "spec.queues.users"),
    ("queues: {users: {}}", "spec.queues.users.secretName"),
    ("queues: {users: {secretName: ''}}", "spec.queues.users.secretName"),
    ("queues: {users: {secretName: s}, replicas: 0}", "spec.queues.replicas"),
    ("queues: {users: {secretName: s}, service: {type: Ingress}}", "spec.queues.service.type"),
    ("queues: {users: {secretName: s}, service: {annotations: {gantrymq.io/applied: x}}}", "spec.queues.service.ann"),
    ("queues: {users: {secretName: s}, podTemplate: {sidecars: [{name: queues, image: x}]}}", "queues is the operator"),
    (
        "queues: {users: {secretName: s}, podTemplate: {volumes: [{name: secret, emptyDir: {}}]}}",
        "podTemplate.volumes: secret ",
    ),
    (
        "queues: {users: {secretName: s}, podTemplate: {volumeMounts: [{name: x, mountPath: /etc/gantrymq/x}]}}",
        "Mounts: below /etc/gantrymq ",
    ),
    ("proxy: {replicas: 101}", "spec.proxy.replicas"),
    ("proxy: {workers: 0}", "spec.proxy.workers"),
    ("proxy: {service: {type: ExternalName}}", "spec.proxy.service.type"),
    ("proxy: {service: {annotations: {gantrymq.io/applied: x}}}", "spec.proxy.service.annotations: those of"),
    ("proxy: {tls: {secretName: Shop_Cert}}", "spec.proxy.tls.secretName"),
    ("proxy: {podTemplate: {sidecars: [{name: proxy, image: x}]}}", "podTemplate.sidecars: proxy is the operator's"),
    ("proxy: {podTemplate: {initContainers: [{name: proxy, image: x}]}}", "podTemplate.initContainers: proxy is the"),
    ("proxy: {podTemplate: {volumes: [{name: tmp, emptyDir: {}}]}}", "podTemplate.volumes: secret, tmp are"),
    ("proxy: {podTemplate: {volumeMounts: [{name: x, mountPath: /tmp/x}]}}", "Mounts: below /tmp and /etc/gantrymq"),
    ("proxy: {podTemplate: {securityContext: {runAsUser: 0}}}", "spec.proxy.podTemplate.securityContext.runAsUser"),
    ("brokers: {replication: {ackTimeout: 50ms}}", "expected 100ms to 5m"),
    ("brokers: {failover: {suspectAfter: 500ms}}", "expected 1s to 5m"),
]


@pytest.mark.parametrize(("spec", "said"), REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(kinds: ControlPlane, spec: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        kinds.admin.create(CLUSTERS, wanted(spec))
    assert refused.value.status == 422


def test_a_name_that_is_too_long_for_what_is_made_of_it_is_refused(kinds: ControlPlane) -> None:
    document = wanted("{}")
    document["metadata"]["name"] = "o" * 41
    with pytest.raises(RefusedError, match="40 characters at most"):
        kinds.admin.create(CLUSTERS, document)


@pytest.mark.parametrize("spec", ["{}", "brokers: {profile: fast, replicasPerGroup: 1}", "brokers: {groups: 64}"])
def test_the_rest_has_defaults(kinds: ControlPlane, spec: str) -> None:
    made = kinds.admin.create(CLUSTERS, wanted(spec))["spec"]
    assert made["nameserver"]["replicas"] == 2 and made["brokers"]["storage"]["size"] == "100Gi"


def test_an_empty_proxy_has_defaults_and_none_is_none(kinds: ControlPlane) -> None:
    assert "proxy" not in kinds.admin.create(CLUSTERS, wanted("{}"))["spec"]
    made = kinds.admin.create(CLUSTERS, wanted("proxy: {}"))["spec"]["proxy"]
    assert made["workers"] == 1 and made["service"]["type"] == "ClusterIP" and "replicas" not in made


def test_queues_with_users_have_defaults_and_none_are_none(kinds: ControlPlane) -> None:
    assert "queues" not in kinds.admin.create(CLUSTERS, wanted("{}"))["spec"]
    made = kinds.admin.create(CLUSTERS, wanted("queues: {users: {secretName: callers}}"))["spec"]["queues"]
    assert made["service"]["type"] == "ClusterIP" and made["podTemplate"]["env"] == [] and "replicas" not in made


def test_fields_of_kubernetes_pass_as_they_are(kinds: ControlPlane) -> None:
    """Whatever a container, a volume or a node affinity may have; other unknown fields are refused."""
    beside = {"name": "beside", "image": "x", "ports": [{"containerPort": 1}], "lifecycle": {"stopSignal": "SIGTERM"}}
    given = {
        "sidecars": [beside],
        "volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "None"}],
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "securityContext": {"supplementalGroups": [5]},
    }
    made = kinds.admin.create(CLUSTERS, wanted(json.dumps({"brokers": {"podTemplate": given}})))
    found = made["spec"]["brokers"]["podTemplate"]
    assert {name: found[name] for name in given} == given
    with pytest.raises(RefusedError, match="zoneAffinity"):
        unknown = wanted("brokers: {podTemplate: {affinity: {zoneAffinity: {}}}}")
        kinds.admin.create(f"{CLUSTERS}?fieldValidation=Strict", unknown)


CHANGES = [
    ("brokers: {groups: 1}", "a group cannot be taken away yet"),
    ("brokers: {replicasPerGroup: 5}", ""),
    ("brokers: {profile: fast, replicasPerGroup: 1}", ""),
    ("brokers: {replication: {allowWritePause: true}, replicasPerGroup: 2}", ""),
    ("brokers: {failover: {timers: fast}}", ""),
    ("deletionPolicy: Delete", ""),
    ("brokers: {podTemplate: {priorityClassName: high}}", ""),
    ("brokers: {storage: {size: 1Gi}}", "spec.brokers.storage.size cannot be changed"),
    ("brokers: {storage: {storageClassName: fast}}", "spec.brokers.storage.storageClassName cannot be changed"),
    ("brokers: {storage: {accessMode: ReadWriteOncePod}}", "spec.brokers.storage.accessMode cannot be changed"),
    ("brokers: {config: {permission: '4'}}", ""),
    ("brokers: {resources: {limits: {memory: 1Gi}}}", ""),
    ("nameserver: {replicas: 3}", ""),
    ("image: other:1", ""),
    ("brokers: {groups: 3}", ""),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_change_is_applied_or_refused_with_what_to_do(kinds: ControlPlane, change: str, said: str) -> None:
    name = kinds.admin.create(CLUSTERS, wanted("brokers: {groups: 2}"))["metadata"]["name"]
    patch = {"spec": yaml.safe_load(change)}
    if not said:
        assert kinds.admin.merge(f"{CLUSTERS}/{name}", patch)["metadata"]["generation"] == 2
        return
    with pytest.raises(RefusedError, match=said):
        kinds.admin.merge(f"{CLUSTERS}/{name}", patch)


def messages(schema: Any) -> Iterator[str]:
    """What each rule says that the API server evaluates."""
    if isinstance(schema, dict):
        yield from (str(each["message"]) for each in schema.get("x-kubernetes-validations", []))
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from messages(each)


def test_every_rule_is_broken_by_a_line_of_these_tables() -> None:
    told = {said for _, said in [*REFUSED, *CHANGES] if said} | {"40 characters at most"}
    quiet = [each for each in messages(definition()) if not any(said in each for said in told)]
    assert not quiet


def test_a_list_shows_what_one_wants_to_know(kinds: ControlPlane) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/brokerclusters.gantrymq.io"
    names, (version,) = (kinds.admin.get(path)["spec"][each] for each in ("names", "versions"))
    shown = [each["name"] for each in version["additionalPrinterColumns"] if not each.get("priority")]
    assert shown == ["Ready", "Masters", "InSync", "Age"]
    assert (names["shortNames"], names["categories"]) == (["bc"], ["mq", "all"])


@pytest.mark.parametrize(
    ("group", "resource", "verb", "may"),
    [
        ("gantrymq.io", "brokerclusters", "watch", True),
        ("gantrymq.io", "brokerclusters", "patch", True),
        ("gantrymq.io", "brokerclusters", "update", False),
        ("gantrymq.io", "brokerclusters", "delete", False),
        ("", "secrets", "get", True),
        ("", "secrets", "list", False),
        ("", "secrets", "delete", False),
        ("", "pods", "patch", True),
        ("", "pods", "delete", True),
        ("", "pods/exec", "create", False),
        ("", "nodes", "get", False),
        ("", "persistentvolumeclaims", "delete", True),
        ("", "persistentvolumeclaims", "patch", False),
        ("", "persistentvolumeclaims", "watch", False),
        ("", "events", "create", True),
        ("", "events", "delete", False),
        ("apps", "deployments", "delete", True),
        ("apps", "deployments", "list", False),
        ("", "services", "delete", True),
        ("", "serviceaccounts", "delete", False),
        ("apps", "statefulsets", "patch", True),
        ("apps", "statefulsets", "delete", True),
        ("coordination.k8s.io", "leases", "create", True),
        ("coordination.k8s.io", "leases", "delete", True),
        ("coordination.k8s.io", "leases", "list", True),
        ("coordination.k8s.io", "leases", "watch", False),
        ("rbac.authorization.k8s.io", "roles", "create", True),
        ("rbac.authorization.k8s.io", "roles", "escalate", False),
        ("rbac.authorization.k8s.io", "clusterroles", "get", False),
    ],
)
def test_the_operator_may_do_what_it_does_and_nothing_else(
    kinds: ControlPlane, group: str, resource: str, verb: str, may: bool
) -> None:
    name, _, subresource = resource.partition("/")
    attributes = {"namespace": NAMESPACE, "group": group, "resource": name, "subresource": subresource, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = kinds.admin.create(REVIEWS, review | {"spec": {"user": OPERATOR, "resourceAttributes": attributes}})
    assert answer["status"]["allowed"] is may


def test_groups_can_be_scaled_like_replicas_of_anything_else(kinds: ControlPlane) -> None:
    name = kinds.admin.create(CLUSTERS, wanted("brokers: {groups: 2}"))["metadata"]["name"]
    assert kinds.admin.get(f"{CLUSTERS}/{name}/scale")["spec"]["replicas"] == 2
    kinds.admin.merge(f"{CLUSTERS}/{name}/scale", {"spec": {"replicas": 3}})
    assert kinds.admin.get(f"{CLUSTERS}/{name}")["spec"]["brokers"]["groups"] == 3
    with pytest.raises(RefusedError, match="a group cannot be taken away yet"):
        kinds.admin.merge(f"{CLUSTERS}/{name}/scale", {"spec": {"replicas": 1}})
