"""What the operator builds: whole, owned, and such that a broker starts with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gantry.broker import config
from gantry_operator.api.brokercluster import PROMISES, Profile, read
from gantry_operator.desired import brokers, nameservers
from gantry_operator.desired.labels import APPLIED, stamped
from testkit.kube.clusters import cluster, document

Document = dict[str, Any]


def everything(**fields: object) -> list[Document]:
    wanted = cluster(**fields)
    groups = [each for group in wanted.groups() for each in brokers.objects(group, "image:1")]
    return [*nameservers.objects(wanted, "image:1"), *groups]


def sets(documents: list[Document]) -> Iterator[Document]:
    return (each for each in documents if each["kind"] == "StatefulSet")


def test_every_object_goes_with_its_cluster() -> None:
    for each in everything(groups=2):
        (owner,) = each["metadata"]["ownerReferences"]
        assert owner["uid"] == "u-1" and owner["controller"] is True
        assert each["metadata"]["namespace"] == "messaging"
        assert each["metadata"]["labels"]["gantrymq.io/cluster"] == "orders"


def test_no_two_objects_are_one() -> None:
    found = [(each["kind"], each["metadata"]["name"]) for each in everything(groups=3)]
    assert len(set(found)) == len(found)


def test_no_selector_asks_for_a_label_that_moves() -> None:
    for each in sets(everything()):
        labels = each["spec"]["selector"]["matchLabels"]
        assert "gantrymq.io/role" not in labels
        assert labels.items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_volumes_outlive_their_set_and_pods_are_replaced_by_the_operator_alone() -> None:
    for each in sets(everything()):
        if each["metadata"]["labels"]["gantrymq.io/component"] == "broker":
            kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
            assert each["spec"]["persistentVolumeClaimRetentionPolicy"] == kept
            assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
            assert each["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("profile", list(Profile))
def test_a_broker_starts_with_what_the_operator_tells_it(profile: Profile, tmp_path: Any) -> None:
    (group,) = cluster(profile=profile.value, config={"store.segment_bytes": "64MiB"}).groups()
    (tmp_path / "broker.yaml").write_text(yaml.safe_dump(brokers.settings(group)))
    environment = {"GANTRY_REPLICATION_ORDINAL": "2", "GANTRY_NETWORK_ADVERTISE": "10.96.1.2"}
    found, notices = config.load(str(tmp_path / "broker.yaml"), environment)
    assert not notices
    assert (found.name, found.replication.ordinal, found.store.segment_bytes) == ("orders-b0", 2, 64 << 20)
    assert found.replication.register == "lease:messaging/orders-b0"
    assert found.replication.members[2] == "orders-b0-2.orders-b0.messaging.svc:10912"
    assert found.role.value == PROMISES[profile].role


def test_a_broker_may_change_the_lease_of_its_group_and_nothing_else() -> None:
    (role,) = [each for each in everything() if each["kind"] == "Role"]
    (rule,) = role["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], ["orders-b0"])
    assert set(rule["verbs"]) == {"get", "patch", "update"}


def test_each_member_has_an_address_of_its_own_that_does_not_wait_for_readiness() -> None:
    services = [each for each in everything() if each["kind"] == "Service"]
    own = [each for each in services if each["metadata"]["name"].startswith("orders-b0-")]
    assert [each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] for each in own] == [
        f"orders-b0-{ordinal}" for ordinal in range(3)
    ]
    assert all(each["spec"]["publishNotReadyAddresses"] and "clusterIP" not in each["spec"] for each in own)


def test_containers_are_nobody_and_cannot_write_their_root() -> None:
    for each in sets(everything()):
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_object_is_stamped_with_its_own_content() -> None:
    one, same, other = (stamped(each[0]) for each in (everything(), everything(), everything(groups=2)))
    assert one == same == other
    before = {stamped(each)["metadata"]["annotations"][APPLIED] for each in everything()}
    after = [stamped(each) for each in everything(config={"permission": "4"})]
    assert [each["kind"] for each in after if each["metadata"]["annotations"][APPLIED] not in before] == [
        "ConfigMap",
        "StatefulSet",
    ]


def test_an_object_of_another_definition_is_named_as_such() -> None:
    broken = document()
    del broken["spec"]["brokers"]["profile"]
    with pytest.raises(ValueError, match="install the definition"):
        read(broken)
