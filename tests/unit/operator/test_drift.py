"""Whether an object still is what was applied: by values, by the owners of its fields, and not by what defaults add."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gantry_operator.api.brokercluster import Image
from gantry_operator.desired import brokers
from gantry_operator.desired.labels import stamped
from gantry_operator.drift import difference, taken_over
from testkit.kube.clusters import cluster

Document = dict[str, Any]
OURS = {"manager": "gantry-operator", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}


def wanted(kind: str = "StatefulSet", **fields: object) -> Document:
    (group,) = cluster(**fields).groups()
    documents = brokers.objects(group, Image("image:1", "IfNotPresent", ()), brokers.Shape(3))
    return stamped(next(each for each in documents if each["kind"] == kind))


def held(document: Document) -> Document:
    """As the API server keeps it: with defaults, a status, and what others may write."""
    found = copy.deepcopy(document)
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 1, "managedFields": [
        OURS | {"fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:replicas": {}}}},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
         "fieldsV1": {"f:status": {"f:replicas": {}}}},
        {"manager": "kubectl-annotate", "operation": "Update",
         "fieldsV1": {"f:metadata": {"f:annotations": {"f:note": {}}}}},
    ]}  # fmt: skip
    found["metadata"]["annotations"]["note"] = "of a person"
    found["metadata"]["labels"]["team"] = "blue"
    found |= {"status": {"replicas": 3}}
    if "spec" in found:
        found["spec"]["revisionHistoryLimit"] = 10
    return found


def test_defaults_status_and_metadata_of_others_are_no_difference() -> None:
    for kind in ("StatefulSet", "Service", "ConfigMap", "Role", "RoleBinding", "PodDisruptionBudget", "ServiceAccount"):
        assert difference(wanted(kind), held(wanted(kind))) is None


def test_a_quantity_that_the_server_writes_in_another_way_is_the_same() -> None:
    wish = wanted(resources={"requests": {"cpu": "1000m", "memory": "1.5Gi"}})
    there = held(wish)
    resources = there["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"] = {"cpu": "1", "memory": "1536Mi"}
    assert difference(wish, there) is None
    resources["requests"]["memory"] = "1Gi"
    assert difference(wish, there) is not None


def _changed_value(there: Document) -> None:
    there["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"


def _missing_value(there: Document) -> None:
    there["spec"]["template"]["spec"]["containers"][0]["env"].pop()


def _foreign_value(there: Document) -> None:
    there["spec"]["template"]["spec"]["containers"][0]["command"] = ["/bin/sh"]
    below = {"f:template": {"f:spec": {"f:containers": {'k:{"name":"broker"}': {"f:command": {}}}}}}
    there["metadata"]["managedFields"].append(
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": below}}
    )


def _missing_label(there: Document) -> None:
    del there["metadata"]["labels"]["gantrymq.io/group"]


def _another_owner(there: Document) -> None:
    there["metadata"]["ownerReferences"][0]["uid"] = "of-another"


@pytest.mark.parametrize("change", [_changed_value, _missing_value, _foreign_value, _missing_label, _another_owner])
def test_an_edit_is_found_and_named(change: Any) -> None:
    there = held(wanted())
    change(there)
    found = difference(wanted(), there)
    assert found is not None and found.is_drift and found.said.startswith("StatefulSet orders-b0: ")
    assert (found.managers == ["kubectl-edit"]) is (change is _foreign_value)


def test_secrets_that_a_platform_adds_to_an_account_are_its_own() -> None:
    """OpenShift would add them again: each repair left one more token behind, and pods without a pull secret."""
    there = held(wanted("ServiceAccount")) | {"secrets": [{"name": "t"}], "imagePullSecrets": [{"name": "d"}]}
    platform = {"manager": "openshift-controller-manager", "operation": "Update",
                "fieldsV1": {"f:secrets": {}, "f:imagePullSecrets": {}}}  # fmt: skip
    there["metadata"]["managedFields"].append(platform)
    assert difference(wanted("ServiceAccount"), there) is None
    assert platform in taken_over(there), "also where something else has to be repaired"


def test_another_wish_is_no_drift() -> None:
    found = difference(wanted(config={"pull.count_max": "64"}), held(wanted()))
    assert found is not None and not found.is_drift


def test_fields_of_others_become_the_operators_and_their_metadata_stays_theirs() -> None:
    there = held(wanted())
    _foreign_value(there)
    there["metadata"]["managedFields"].append(
        {"manager": "kubectl", "operation": "Update", "subresource": "scale",
         "fieldsV1": {"f:spec": {"f:replicas": {}}, "f:metadata": {"f:labels": {"f:team": {}}}}}
    )  # fmt: skip
    mine, *others = taken_over(there)
    assert (mine["manager"], mine["operation"]) == ("gantry-operator", "Apply")
    assert mine["fieldsV1"]["f:spec"].keys() == {"f:replicas", "f:template"}
    assert [(each["manager"], list(each["fieldsV1"])) for each in others] == [
        ("kube-controller-manager", ["f:status"]), ("kubectl-annotate", ["f:metadata"]), ("kubectl", ["f:metadata"]),
    ]  # fmt: skip
