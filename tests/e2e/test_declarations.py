"""BrokerTopics and ConsumerGroups on a real API server: defaults, refusals, columns, what the operator may do."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gantry_operator.api.declared import FINALIZER
from gantry_operator.api.definitions import files
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import NAMESPACE, fresh_name
from testkit.pairplay import until
from testkit.sources import ROOT

HOME = f"/apis/gantrymq.io/v1alpha1/namespaces/{NAMESPACE}"
KINDS = {"brokertopics": "BrokerTopic", "consumergroups": "ConsumerGroup"}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPERATOR = "system:serviceaccount:default:gantrymq"
RESET = "{requestId: one, topic: tea, to: {position: Earliest}}"


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> ControlPlane:
    for name in files():
        plane.admin.apply((ROOT / "crds" / name).read_text())
    until(lambda: all(is_served(plane, each) for each in KINDS), "the kinds are served")
    return plane


def is_served(plane: ControlPlane, plural: str) -> bool:
    try:
        return str(plane.admin.get(f"{HOME}/{plural}")["kind"]) == f"{KINDS[plural]}List"
    except RefusedError:
        return False


def wanted(plural: str, spec: str, name: str = "") -> dict[str, Any]:
    metadata = {"name": name or fresh_name(), "namespace": NAMESPACE}
    kind = {"apiVersion": "gantrymq.io/v1alpha1", "kind": KINDS[plural]}
    return kind | {"metadata": metadata, "spec": {"clusterRef": {"name": "orders"}, **yaml.safe_load(spec)}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("clusterRef: {}", "spec.clusterRef.name"),
        ("clusterRef: {name: Orders}", "spec.clusterRef.name"),
        ("topicName: not/allowed", "spec.topicName"),
        ("topicName: '%RETRY%shop'", "spec.topicName"),
        (f"topicName: {'t' * 128}", "spec.topicName"),
        ("topicName: TBW102", "brokers keep topics and groups of this name themselves"),
        ("topicName: rmq_sys_mine", "brokers keep topics and groups of this name themselves"),
        ("queues: {write: 0, read: 8}", "spec.queues.write"),
        ("queues: {write: 1025, read: 2000}", "spec.queues"),
        ("queues: {write: 9, read: 8}", "spec.queues.read: at least as many as spec.queues.write"),
        ("placement: {groups: [zero]}", "spec.placement.groups"),
        ("placement: {groups: [b0, b0]}", "spec.placement.groups"),
        ("permission: Everything", "spec.permission"),
        ("messageType: PIGEON", "spec.messageType"),
        ("limits: {bodyBytes: -1}", "spec.limits.bodyBytes"),
        ("limits: {properties: 40000}", "spec.limits.properties"),
        ("managementPolicy: Ignore", "spec.managementPolicy"),
        ("deletionPolicy: Destroy", "spec.deletionPolicy"),
    ],
)
def test_a_topic_that_cannot_be_meant_is_refused_by_name(kinds: ControlPlane, spec: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        kinds.admin.create(f"{HOME}/brokertopics", wanted("brokertopics", spec))
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("groupName: not/allowed", "spec.groupName"),
        (f"groupName: {'g' * 121}", "spec.groupName"),
        ("groupName: TOOLS_CONSUMER", "brokers keep topics and groups of this name themselves"),
        ("groupName: CID_RMQ_SYS_MINE", "brokers keep topics and groups of this name themselves"),
        ("retry: {maxAttempts: -1}", "spec.retry.maxAttempts"),
        ("retry: {maxAttempts: 1001}", "spec.retry.maxAttempts"),
        ("enabled: perhaps", "spec.enabled"),
        ("orderly: perhaps", "spec.orderly"),
        ("resetOffset: {requestId: one, topic: tea}", "spec.resetOffset.to"),
        ("resetOffset: {requestId: one, topic: tea, to: {}}", "either a timestamp or a position"),
        (
            "resetOffset: {requestId: one, topic: tea, to: {position: Latest, timestamp: '2026-11-19T00:00:00Z'}}",
            "either a timestamp or a position",
        ),
        ("resetOffset: {requestId: one, topic: tea, to: {timestamp: yesterday}}", "spec.resetOffset.to.timestamp"),
        ("resetOffset: {requestId: one, topic: tea, to: {position: Middle}}", "spec.resetOffset.to.position"),
        ("resetOffset: {requestId: '', topic: tea, to: {position: Latest}}", "spec.resetOffset.requestId"),
        (f"{{broadcast: true, resetOffset: {RESET}}}", "members of a broadcasting group keep their offsets themselves"),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused_by_name(kinds: ControlPlane, spec: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        kinds.admin.create(f"{HOME}/consumergroups", wanted("consumergroups", spec))
    assert refused.value.status == 422


@pytest.mark.parametrize("plural", KINDS)
def test_an_object_names_its_cluster(kinds: ControlPlane, plural: str) -> None:
    document = wanted(plural, "{}")
    del document["spec"]["clusterRef"]
    with pytest.raises(RefusedError, match=r"spec.clusterRef"):
        kinds.admin.create(f"{HOME}/{plural}", document)


@pytest.mark.parametrize(("plural", "field"), [("brokertopics", "topicName"), ("consumergroups", "groupName")])
def test_a_name_that_brokers_do_not_allow_wants_another_one(kinds: ControlPlane, plural: str, field: str) -> None:
    name = f"{fresh_name()}.dotted"
    with pytest.raises(RefusedError, match=f"spec.{field}: brokers do not allow a name with"):
        kinds.admin.create(f"{HOME}/{plural}", wanted(plural, "{}", name))
    kinds.admin.create(f"{HOME}/{plural}", wanted(plural, f"{field}: Undotted_1", name))


def test_the_rest_has_defaults(kinds: ControlPlane) -> None:
    topic = kinds.admin.create(f"{HOME}/brokertopics", wanted("brokertopics", "{}"))["spec"]
    assert topic["queues"] == {"write": 8, "read": 8} and topic["permission"] == "ReadWrite"
    assert (topic["placement"], topic["limits"]) == ({"groups": []}, {})
    assert (topic["managementPolicy"], topic["deletionPolicy"]) == ("Managed", "Retain")
    group = kinds.admin.create(f"{HOME}/consumergroups", wanted("consumergroups", f"resetOffset: {RESET}"))["spec"]
    assert (group["enabled"], group["broadcast"], group["retry"]) == (True, False, {"maxAttempts": 16})
    assert "orderly" not in group, "what the brokers have stays"
    assert group["resetOffset"]["force"] is False


@pytest.mark.parametrize(
    ("plural", "change", "said"),
    [
        ("brokertopics", "topicName: other", "spec.topicName cannot be changed"),
        ("brokertopics", "clusterRef: {name: other}", "spec.clusterRef cannot be changed"),
        ("brokertopics", "queues: {write: 2, read: 2}", ""),
        ("brokertopics", "{permission: None, messageType: FIFO, limits: {properties: 0}}", ""),
        ("brokertopics", "{placement: {groups: [b0]}, managementPolicy: Observe, deletionPolicy: Delete}", ""),
        ("consumergroups", "groupName: other", "spec.groupName cannot be changed"),
        ("consumergroups", "clusterRef: {name: other}", "spec.clusterRef cannot be changed"),
        ("consumergroups", f"{{enabled: false, retry: {{maxAttempts: 0}}, resetOffset: {RESET}}}", ""),
    ],
)
def test_a_change_is_taken_or_refused_with_what_to_do(
    kinds: ControlPlane, plural: str, change: str, said: str
) -> None:
    name = kinds.admin.create(f"{HOME}/{plural}", wanted(plural, "{}"))["metadata"]["name"]
    patch = {"spec": yaml.safe_load(change)}
    if not said:
        assert kinds.admin.merge(f"{HOME}/{plural}/{name}", patch)["metadata"]["generation"] == 2
        return
    with pytest.raises(RefusedError, match=said):
        kinds.admin.merge(f"{HOME}/{plural}/{name}", patch)


def test_a_status_and_a_finalizer_are_kept_as_the_operator_writes_them(kinds: ControlPlane) -> None:
    made = kinds.admin.create(f"{HOME}/consumergroups", wanted("consumergroups", "{}"))
    path = f"{HOME}/consumergroups/{made['metadata']['name']}"
    condition = {
        "type": "Ready", "status": "True", "reason": "Applied", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    status = {
        "observedGeneration": 1, "groupName": "shop", "members": 2, "conditions": [condition],
        "placements": [{"group": "b0", "epoch": 3}], "lag": [{"topic": "tea", "messages": 7}],
        "lastReset": {"requestId": "one", "result": "Done", "at": "2026-11-21T10:00:00Z"},
    }  # fmt: skip
    kinds.admin.merge(f"{path}/status", {"status": status})
    version = kinds.admin.get(path)["metadata"]["resourceVersion"]
    kinds.admin.merge(path, {"metadata": {"resourceVersion": version, "finalizers": [FINALIZER]}})
    found = kinds.admin.get(path)
    assert json.dumps(found["status"], sort_keys=True) == json.dumps(status, sort_keys=True)
    assert found["metadata"]["generation"] == 1 and found["metadata"]["finalizers"] == [FINALIZER]
    with pytest.raises(RefusedError) as refused:
        kinds.admin.merge(path, {"metadata": {"resourceVersion": version, "finalizers": []}})
    assert refused.value.status == 409
    kinds.admin.delete(path)
    assert "deletionTimestamp" in kinds.admin.get(path)["metadata"]
    kinds.admin.merge(path, {"metadata": {"finalizers": []}})
    with pytest.raises(RefusedError, match="not found"):
        kinds.admin.get(path)


@pytest.mark.parametrize(
    ("plural", "columns"),
    [
        ("brokertopics", ["Name", "Cluster", "Topic", "Write", "Read", "Type", "Ready", "Age"]),
        ("consumergroups", ["Name", "Cluster", "Group", "Members", "Consuming", "Ready", "Age"]),
    ],
)
def test_a_list_shows_what_one_wants_to_know(kinds: ControlPlane, plural: str, columns: list[str]) -> None:
    folder = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found = kinds.admin.get(f"{folder}/{plural}.gantrymq.io")
    shown = found["spec"]["versions"][0]["additionalPrinterColumns"]
    assert ["Name", *(each["name"] for each in shown if not each.get("priority"))] == columns
    short = {"brokertopics": ["bt"], "consumergroups": ["cg"]}[plural]
    assert (found["spec"]["names"]["shortNames"], found["spec"]["names"]["categories"]) == (short, ["mq"])


@pytest.mark.parametrize(
    ("resource", "verb", "may"),
    [
        ("brokertopics", "watch", True),
        ("brokertopics", "patch", True),
        ("brokertopics/status", "patch", True),
        ("consumergroups/status", "patch", True),
        ("consumergroups", "list", True),
        ("brokertopics", "create", False),
        ("brokertopics", "update", False),
        ("consumergroups", "delete", False),
    ],
)
def test_the_operator_may_do_what_it_does_and_nothing_else(
    kinds: ControlPlane, resource: str, verb: str, may: bool
) -> None:
    name, _, subresource = resource.partition("/")
    attributes = {
        "namespace": NAMESPACE, "group": "gantrymq.io", "resource": name, "subresource": subresource, "verb": verb,
    }  # fmt: skip
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = kinds.admin.create(REVIEWS, review | {"spec": {"user": OPERATOR, "resourceAttributes": attributes}})
    assert answer["status"]["allowed"] is may


def test_the_example_is_taken(kinds: ControlPlane) -> None:
    for document in yaml.safe_load_all((ROOT / "charts" / "gantrymq" / "examples" / "topics.yaml").read_text()):
        document["metadata"]["namespace"] = NAMESPACE
        plural = next(each for each, kind in KINDS.items() if kind == document["kind"])
        kinds.admin.create(f"{HOME}/{plural}", document)
