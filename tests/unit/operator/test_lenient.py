"""Objects of another definition than the operator's: what is missing, unknown, or of another type."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gantry_operator.api.brokercluster import read as strictly
from gantry_operator.api.lenient import counted, read, read_leniently
from testkit.kube.clusters import document

Document = dict[str, Any]
# Every key that is asked for by name in `brokercluster`, and a section.
KEYS = (
    "image", "imagePullSecrets", "nameserver", "nameserver.replicas", "deletionPolicy", "networkPolicy",
    "networkPolicy.clients", "brokers.profile", "brokers.replication.ackTimeout", "brokers.failover",
    "brokers.failover.timers", "brokers.failover.mode", "brokers.disruption", "brokers.storage.size",
    "brokers.podTemplate", "brokers.podTemplate.env", "brokers.config", "brokers.resources", "brokers.antiAffinity",
)  # fmt: skip


def place(made: Document, key: str) -> tuple[Document, str]:
    """The object that holds the key, and its last name."""
    *parents, name = key.split(".")
    held = made["spec"]
    for each in parents:
        held = held[each]
    return held, name


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_missing_has_its_default_and_is_no_fault(key: str) -> None:
    made = document()
    held, name = place(made, key)
    del held[name]
    assert read(made) == strictly(document())


def test_what_is_not_known_is_left_out() -> None:
    made = document()
    made["spec"]["later"] = {"x": 1}
    made["spec"]["brokers"]["resources"] = {"claims": [], "limits": {"cpu": "1"}}
    found = read_leniently(made)
    assert not found.faults and found.cluster.brokers.resources == {"limits": {"cpu": "1"}}


def test_fields_that_follow_kubernetes_own_types_pass_as_they_are() -> None:
    containers = [{"name": "x", "image": "i", "resources": {"limits": {"cpu": 1}}}]
    made = document(podTemplate={"sidecars": containers, "affinity": {"nodeAffinity": {"x": 1}}})
    found = read_leniently(made)
    assert not found.faults
    assert found.cluster.brokers.pod["sidecars"] == containers
    assert found.cluster.brokers.pod["affinity"] == {"nodeAffinity": {"x": 1}}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("brokers.profile", "turbo", "spec.brokers.profile: 'turbo' is not known to this operator; it knows durable"),
        ("brokers.profile", 3, "spec.brokers.profile: 3 is no string"),
        ("brokers.failover.suspectAfter", "1h", "spec.brokers.failover.suspectAfter: '1h' is no time"),
        ("brokers.failover.fastPath", "Often", "spec.brokers.failover.fastPath: 'Often' is not known"),
        ("brokers.podTemplate", "x", "spec.brokers.podTemplate: 'x' is no object"),
        ("nameserver.replicas", True, "spec.nameserver.replicas: True is no integer"),
        ("imagePullSecrets", ["a", 4], "spec.imagePullSecrets[1]: 4 is no string"),
        ("brokers.config", {"permission": 6}, "spec.brokers.config.permission: 6 is no string"),
        ("brokers", "all", "spec.brokers: 'all' is no object"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_and_a_default_stands_in(key: str, value: object, words: str) -> None:
    made = document()
    held, name = place(made, key)
    held[name] = value
    found = read_leniently(made)
    assert any(each.startswith(words) for each in found.faults), found.faults
    assert found.cluster.key.name == "orders" and "helm upgrade with crds.upgrade=true" in found.message
    with pytest.raises(ValueError, match="nothing is changed until it can be read"):
        read(made)


def test_where_a_default_would_let_a_failover_do_more_the_careful_value_stands_in() -> None:
    made = document(failover={"fastPath": "Later", "afterTotalPowerLoss": "Later", "unclean": "Later"})
    failover = read_leniently(made).cluster.brokers.failover
    assert not (failover.has_fast_path or failover.after_total_power_loss or failover.may_be_unclean)


@pytest.mark.parametrize("key", ["groups", "replicasPerGroup"])
@pytest.mark.parametrize("value", [None, "three", 0])
def test_how_many_there_are_is_taken_from_what_is_there(key: str, value: object) -> None:
    made = document()
    made["spec"]["brokers"][key] = value
    found = read_leniently(made)
    assert found.faults and not found.has_counts
    names = ["orders-b0", "orders-b2", "orders-b1-4", "orders-ns-0", "orders-b7x", "other-b9"]
    brokers = counted(found, names, [3]).brokers
    assert (brokers.groups, brokers.replicas) == (3, 5)
    assert counted(found, [], []).brokers.groups == 0
    whole = read_leniently(document(groups=2))
    assert counted(whole, names, [3]) == whole.cluster


def test_reading_changes_no_object() -> None:
    made = document()
    del made["spec"]["brokers"]["podTemplate"]
    before = copy.deepcopy(made)
    read(made).brokers.pod["labels"]["x"] = "y"  # type: ignore[index]
    assert made == before and read(made).brokers.pod["labels"] == {}


def test_an_object_without_a_name_is_none() -> None:
    made = document()
    del made["metadata"]["uid"]
    with pytest.raises(ValueError, match="uid"):
        read_leniently(made)
