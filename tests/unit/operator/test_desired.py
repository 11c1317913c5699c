"""What the operator builds: whole, owned, and such that a broker starts with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.broker.settings import loading
from gantry.errors import ConfigError
from gantry_operator.api.brokercluster import PROMISES, Image, Profile, read
from gantry_operator.desired import brokers, nameservers
from gantry_operator.desired.labels import APPLIED, stamped
from testkit.kube.clusters import cluster, document

Document = dict[str, Any]
IMAGE = Image("image:1", "IfNotPresent", ("regcred",))


def everything(image: Image = IMAGE, **fields: object) -> list[Document]:
    wanted = cluster(**fields)
    shape = brokers.Shape(wanted.brokers.replicas)
    groups = [each for group in wanted.groups() for each in brokers.objects(group, image, shape)]
    return [*nameservers.objects(wanted, image), *groups]


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
    found, notices = loading.load(str(tmp_path / "broker.yaml"), environment)
    assert not notices
    assert (found.name, found.replication.ordinal, found.store.segment_bytes) == ("orders-b0", 2, 64 << 20)
    assert found.replication.register == "lease:messaging/orders-b0"
    assert found.replication.members[2] == "orders-b0-2.orders-b0.messaging.svc:10912"
    assert found.role.value == PROMISES[profile].role


def test_a_broker_may_change_the_lease_of_its_group_and_nothing_else() -> None:
    (role,) = [each for each in everything() if each["kind"] == "Role"]
    (rule,) = role["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], ["orders-b0"])
    assert set(rule["verbs"]) == {"get", "patch"}


def test_each_member_has_an_address_of_its_own_that_does_not_wait_for_readiness() -> None:
    services = [each for each in everything() if each["kind"] == "Service"]
    own = [each for each in services if each["metadata"]["name"].startswith("orders-b0-")]
    assert [each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] for each in own] == [
        f"orders-b0-{ordinal}" for ordinal in range(3)
    ]
    assert all(each["spec"]["publishNotReadyAddresses"] and "clusterIP" not in each["spec"] for each in own)


@pytest.mark.parametrize("group", [10001, None], ids=["ours", "the-platforms"])
def test_pods_are_restricted_and_leave_their_user_to_image_and_platform(group: int | None) -> None:
    for each in sets(everything(replace(IMAGE, volume_group=group))):
        pod = each["spec"]["template"]["spec"]
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True and security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"runAsUser", "runAsGroup"} & security.keys() and security.get("fsGroup") == group
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_object_is_stamped_with_its_own_content() -> None:
    one, same, other = (stamped(each[0]) for each in (everything(), everything(), everything(groups=2)))
    assert one == same == other
    before = {stamped(each)["metadata"]["annotations"][APPLIED] for each in everything()}
    after = [stamped(each) for each in everything(config={"pull.count_max": "64"})]
    assert [each["kind"] for each in after if each["metadata"]["annotations"][APPLIED] not in before] == [
        "ConfigMap",
        "StatefulSet",
    ]


def test_an_object_of_another_definition_is_named_as_such() -> None:
    broken = document()
    del broken["spec"]["brokers"]["profile"]
    with pytest.raises(ValueError, match="install the definition"):
        read(broken)


def test_a_key_that_a_broker_takes_while_it_runs_makes_no_other_template() -> None:
    def template(**fields: object) -> Document:
        (found,) = [each for each in sets(everything(**fields)) if each["metadata"]["name"] == "orders-b0"]
        return dict(found["spec"]["template"])

    assert template() == template(config={"permission": "4"})
    assert template() != template(config={"pull.count_max": "64"})


def test_a_container_that_starts_again_in_place_finds_the_configuration_for_which_its_pod_was_made() -> None:
    def configs(**fields: object) -> dict[str, Document]:
        found = [each for each in everything(**fields) if each["kind"] == "ConfigMap"]
        return {each["metadata"]["name"]: yaml.safe_load(each["data"]["broker.yaml"]) for each in found}

    ((name, before),) = configs().items()
    for fields in ({"config": {"pull.count_max": "64"}}, {"profile": "fast"}, {"failover": {"suspectAfter": "9s"}}):
        assert name not in configs(**fields), "another ConfigMap, so the one of running pods stays as it is"
    ((same, hot),) = configs(config={"permission": "4"}).items()
    assert same == name and hot == before | {"permission": "4"}
    (mounted,) = [each["spec"]["template"]["spec"]["volumes"][0] for each in sets(everything()) if "volumes" in
                  each["spec"]["template"]["spec"]]  # fmt: skip
    assert mounted["configMap"] == {"name": name}


def test_another_number_of_members_makes_no_other_template() -> None:
    three, five = (
        [each["spec"]["template"] for each in sets(everything(replicasPerGroup=number))] for number in (3, 5)
    )
    assert three == five


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"profile": "fast"}, ("ASYNC_FLUSH", "ASYNC_MASTER", 1)),
        ({"profile": "fast", "flush": {"mode": "SYNC"}}, ("SYNC_FLUSH", "ASYNC_MASTER", 1)),
        ({"profile": "durable", "flush": {"mode": "ASYNC"}}, ("ASYNC_FLUSH", "SYNC_MASTER", 2)),
        ({"replication": {"mode": "ASYNC_MASTER"}}, ("SYNC_FLUSH", "ASYNC_MASTER", 1)),
        ({"replicasPerGroup": 4, "replication": {"minInSync": 3}}, ("SYNC_FLUSH", "SYNC_MASTER", 3)),
    ],
)
def test_what_is_said_explicitly_wins_over_the_profile(fields: dict[str, Any], expected: tuple[object, ...]) -> None:
    (group,) = cluster(**fields).groups()
    found = brokers.as_run(group)
    told = brokers.settings(group)
    assert (found["store.flush"], told["role"], found["replication.min_in_sync"]) == expected


def test_a_key_that_cannot_be_meant_is_named_with_the_nearest_one() -> None:
    (group,) = cluster(config={"store.segmnt_bytes": "64MiB"}).groups()
    with pytest.raises(ConfigError, match=r"spec.brokers.config: store.segmnt_bytes is not known.*store.segment_bytes"):
        brokers.as_run(group)


def test_pods_get_what_their_template_asks_for_and_keep_what_is_the_operators() -> None:
    wanted = cluster().brokers.pod | {
        "labels": {"team": "orders"},
        "tolerations": [{"key": "disk", "operator": "Exists"}],
        "spread": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
        "priorityClassName": "high",
        "env": [{"name": "TZ", "value": "UTC"}],
    }
    (found,) = [each for each in sets(everything(podTemplate=wanted)) if each["metadata"]["name"] == "orders-b0"]
    template = found["spec"]["template"]
    labels, spec = template["metadata"]["labels"], template["spec"]
    assert labels["team"] == "orders" and labels["gantrymq.io/group"] == "b0"
    assert spec["tolerations"] == [{"key": "disk", "operator": "Exists"}] and spec["priorityClassName"] == "high"
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == found["spec"]["selector"]["matchLabels"]
    assert spec["imagePullSecrets"] == [{"name": "regcred"}] and "nodeSelector" not in spec
    assert {"name": "TZ", "value": "UTC"} in spec["containers"][0]["env"]
    assert "TZ" not in str(found["spec"]["volumeClaimTemplates"])


def test_what_is_added_to_a_pod_stands_beside_what_is_the_operators() -> None:
    plain, source = {"name": "beside", "image": "vector:1"}, {"secretKeyRef": {"name": "s", "key": "k"}}
    near = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": {"topologyKey": "z"}}]}
    wanted = cluster().brokers.pod | {
        "env": [{"name": "PASSWORD", "valueFrom": source}, {"name": "EMPTY"}],
        "affinity": {"podAffinity": near, "podAntiAffinity": near},
        "sidecars": [plain, plain | {"name": "own", "securityContext": {"runAsUser": 7}}],
        "initContainers": [plain | {"name": "before"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "securityContext": {"runAsUser": 1000650000, "fsGroup": 7, "supplementalGroups": [8], "runAsNonRoot": False},
    }
    (before,), (after,) = (
        [each["spec"]["template"]["spec"] for each in sets(made) if each["metadata"]["name"] == "orders-b0"]
        for made in (everything(), everything(podTemplate=wanted))
    )
    (server,), (same, first, second) = before["containers"], after["containers"]
    added = {"env": 2, "volumeMounts": 1}
    assert {key: same[key][: -added[key]] if key in added else same[key] for key in same} == server
    assert same["env"][-2:] == [{"name": "PASSWORD", "valueFrom": source}, {"name": "EMPTY", "value": ""}]
    assert [each["name"] for each in after["volumes"]] == ["config", "secret", "scratch"]
    unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert first == plain | {"securityContext": unprivileged} and second["securityContext"] == {"runAsUser": 7}
    assert after["initContainers"] == [{**plain, "name": "before", "securityContext": unprivileged}]
    assert after["securityContext"] == before["securityContext"] | {
        "runAsUser": 1000650000, "fsGroup": 7, "supplementalGroups": [8],
    }  # fmt: skip
    apart = "preferredDuringSchedulingIgnoredDuringExecution"
    assert len(after["affinity"]["podAntiAffinity"][apart]) == 2 and after["affinity"]["podAffinity"] == near


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(list(Profile)),
    st.sampled_from([None, "SYNC_MASTER", "ASYNC_MASTER"]),
    st.sampled_from([None, "SYNC", "ASYNC"]),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_a_broker_starts_with_whatever_the_api_server_lets_in(
    profile: Profile, mode: str | None, flush: str | None, replicas: int, least: int
) -> None:
    """The rules of the definition are at least as strict as a broker's own."""
    role = mode or PROMISES[profile].role
    if role == "ASYNC_MASTER":
        least = 1
    elif not 2 <= least < replicas:
        return  # refused: test_definition
    replication = {"minInSync": least} | ({"mode": mode} if mode else {})
    given_flush = {"mode": flush} if flush else {}
    fields = {"profile": profile.value, "replicasPerGroup": replicas, "replication": replication, "flush": given_flush}
    (group,) = cluster(**fields).groups()
    found, told = brokers.as_run(group), brokers.settings(group)
    assert (told["role"], found["replication.min_in_sync"]) == (role, least)
    assert found["store.flush"] == (f"{flush}_FLUSH" if flush else PROMISES[profile].flush)


def test_name_servers_are_ready_when_they_know_brokers_and_never_keep_a_node_from_being_drained() -> None:
    found = {each["kind"]: each["spec"] for each in nameservers.objects(cluster(), IMAGE)}
    (server,) = found["StatefulSet"]["template"]["spec"]["containers"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {"name": "GANTRY_NAMESERVER_AWAIT_BROKERS", "value": "true"} in server["env"]
    assert server["livenessProbe"]["httpGet"]["path"] == server["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert found["PodDisruptionBudget"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
