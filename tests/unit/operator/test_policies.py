"""Who may connect to whom: a table of flows that must go and flows that must not, over what is rendered."""

from __future__ import annotations

from typing import Any

import pytest

from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import BrokerCluster
from gantry_operator.desired import brokers, nameservers, policies
from gantry_operator.desired.doors import DoorShape, deployment
from gantry_operator.doors import own_part
from testkit.kube import flows
from testkit.kube.clusters import document
from testkit.kube.flows import Pod

HOME = "gantrymq-system"
CLIENT = {"gantrymq.io/client": "yes", "app": "shop"}


def cluster(name: str = "orders", namespace: str = "messaging", **guard: Any) -> BrokerCluster:
    wanted = document()
    wanted["metadata"] |= {"name": name, "namespace": namespace}
    service = {"type": guard.pop("service", "ClusterIP")}
    wanted["spec"]["proxy"] = {"workers": guard.pop("workers", 1), "service": service}
    wanted["spec"]["queues"] = {"users": {"secretName": "users"}, "service": service}
    wanted["spec"]["networkPolicy"] |= guard
    return lenient.read(wanted)


def pods(of: BrokerCluster) -> dict[str, Pod]:
    """As the sets make them: a label that only the policies know would select nobody."""
    image = of.image
    (group,) = of.groups()
    found = {}
    for kind, made in (
        ("broker", brokers.objects(group, image, brokers.Shape(3, ""))),
        ("nameserver", nameservers.objects(of, image)),
    ):
        (stateful_set,) = [each for each in made if each["kind"] == "StatefulSet"]
        labels = stateful_set["spec"]["template"]["metadata"]["labels"]
        found[kind] = Pod(of.key.namespace, labels)
    for door in of.doors:
        made = deployment(of, door, image, DoorShape(2, ""), own_part(of, door.kind))
        found[door.kind.component] = Pod(of.key.namespace, made["spec"]["template"]["metadata"]["labels"])
    return found


OURS, OTHER, ELSEWHERE = cluster(), cluster("payments"), cluster(namespace="elsewhere")
WHO = {
    "broker": pods(OURS)["broker"],
    "nameserver": pods(OURS)["nameserver"],
    "proxy": pods(OURS)["proxy"],
    "queues": pods(OURS)["queues"],
    "another cluster's queues": pods(OTHER)["queues"],
    "another cluster's proxy": pods(OTHER)["proxy"],
    "another cluster's broker": pods(OTHER)["broker"],
    "a broker of that name elsewhere": pods(ELSEWHERE)["broker"],
    "operator": Pod(HOME, {"app.kubernetes.io/name": "gantrymq"}),
    "client": Pod("shop", CLIENT),
    "client here": Pod("messaging", CLIENT),
    "stranger": Pod("shop", {"app": "shop"}),
    "stranger here": Pod("messaging", {"app": "shop"}),
    "prometheus": Pod("monitoring", {"app": "prometheus"}),
}
SERVED, MEMBERS, METRICS, NAMES = (10911, 10909), (10912, 9405), (9404,), (9876,)
GRPC, HTTP = (8081,), (9407,)
TABLE = [
    *(("broker", who, SERVED, True) for who in ("client", "client here", "broker", "nameserver", "operator")),
    *(("broker", who, SERVED, False) for who in ("stranger", "stranger here", "prometheus")),
    ("broker", "another cluster's broker", SERVED, False),
    *(("broker", who, MEMBERS, True) for who in ("broker", "operator")),
    *(
        ("broker", who, MEMBERS, False)
        for who in ("client", "client here", "stranger", "another cluster's broker", "a broker of that name elsewhere")
    ),
    *(("broker", who, METRICS, True) for who in WHO),
    *(("nameserver", who, NAMES, True) for who in ("client", "client here", "broker", "operator")),
    *(("nameserver", who, NAMES, False) for who in ("stranger", "stranger here", "another cluster's broker")),
    *(("nameserver", who, METRICS, True) for who in WHO),
    *(("nameserver", who, (10911, 9405, 22), False) for who in ("client", "stranger", "operator", "broker")),
    *(("broker", "proxy", ports, True) for ports in (SERVED, METRICS)),
    ("nameserver", "proxy", NAMES, True),
    ("broker", "another cluster's proxy", SERVED, False),
    *(("proxy", who, GRPC, True) for who in ("client", "client here", "proxy", "operator")),
    *(("proxy", who, GRPC, False) for who in ("stranger", "stranger here", "prometheus", "another cluster's broker")),
    *(("proxy", who, METRICS, True) for who in WHO),
    *(("proxy", who, (22, 10911), False) for who in ("client", "stranger", "operator", "broker")),
    *(("broker", "queues", ports, True) for ports in (SERVED, METRICS)),
    ("nameserver", "queues", NAMES, True),
    ("broker", "another cluster's queues", SERVED, False),
    *(("queues", who, HTTP, True) for who in ("client", "client here", "queues", "operator")),
    *(("queues", who, HTTP, False) for who in ("stranger", "stranger here", "prometheus", "another cluster's broker")),
    *(("queues", who, METRICS, True) for who in WHO),
    *(("queues", who, (22, 8081, 10911), False) for who in ("client", "stranger", "operator", "broker")),
    *(("broker", who, (22, 9876), False) for who in ("client", "stranger", "operator", "broker")),
]


@pytest.mark.parametrize(("target", "who", "ports", "may"), TABLE)
def test_a_flow_goes_or_does_not(target: str, who: str, ports: tuple[int, ...], may: bool) -> None:
    made = [*policies.objects(OURS, HOME), *policies.objects(OTHER, HOME), *policies.objects(ELSEWHERE, HOME)]
    for port in ports:
        assert flows.allows(made, WHO[who], WHO[target], port) is may, port


def test_everybody_may_be_a_client_and_still_nobody_else_is_a_member() -> None:
    made = policies.objects(cluster(clients="Any"), HOME)
    for port in (*SERVED, *METRICS):
        assert flows.allows(made, WHO["stranger"], WHO["broker"], port)
    assert flows.allows(made, WHO["stranger"], WHO["nameserver"], 9876)
    assert flows.allows(made, WHO["stranger"], WHO["proxy"], 8081)
    assert flows.allows(made, WHO["stranger"], WHO["queues"], 9407)
    for port in MEMBERS:
        assert not flows.allows(made, WHO["stranger"], WHO["broker"], port)
        assert flows.allows(made, WHO["operator"], WHO["broker"], port)


@pytest.mark.parametrize(("door", "port"), [("proxy", 8081), ("queues", 9407)])
def test_a_door_that_is_open_to_the_outside_is_open_to_everybody_and_brokers_are_not(door: str, port: int) -> None:
    for service in ("NodePort", "LoadBalancer"):
        made = policies.objects(cluster(service=service), HOME)
        assert flows.allows(made, WHO["stranger"], WHO[door], port)
        assert not flows.allows(made, WHO["stranger"], WHO[door], 22)
        assert not flows.allows(made, WHO["stranger"], WHO["broker"], 10911)


@pytest.mark.parametrize(("door", "other", "port"), [("proxy", "queues", 9407), ("queues", "proxy", 8081)])
def test_a_door_that_is_open_does_not_open_the_other(door: str, other: str, port: int) -> None:
    wanted = document()
    wanted["spec"] |= {"proxy": {}, "queues": {"users": {"secretName": "users"}}}
    wanted["spec"][door]["service"] = {"type": "LoadBalancer"}
    made = policies.objects(lenient.read(wanted), HOME)
    assert not flows.allows(made, WHO["stranger"], WHO[other], port)
    assert flows.allows(made, WHO["client"], WHO[other], port)


def test_metrics_of_all_workers_are_at_one_port_and_no_other_is_open() -> None:
    made = policies.objects(cluster(workers=3), HOME)
    for port, is_open in ((9404, True), (9405, False)):
        assert flows.allows(made, WHO["stranger"], WHO["proxy"], port) is is_open
        assert flows.allows(made, WHO["stranger"], WHO["broker"], port) is is_open


def test_who_wants_no_guard_has_none() -> None:
    made = policies.objects(cluster(clients="Unguarded"), HOME)
    assert all(flows.allows(made, WHO["stranger"], WHO["broker"], port) for port in (*SERVED, *MEMBERS, *METRICS, 22))


def test_metrics_may_be_for_some_namespaces() -> None:
    made = policies.objects(cluster(metricsNamespaces=["monitoring"]), HOME)
    for target in ("broker", "nameserver", "proxy", "queues"):
        assert flows.allows(made, WHO["prometheus"], WHO[target], 9404)
        assert flows.allows(made, WHO["operator"], WHO[target], 9404)
        assert not flows.allows(made, WHO["stranger"], WHO[target], 9404)


def test_other_peoples_pods_are_not_selected() -> None:
    made = policies.objects(OURS, HOME)
    assert flows.allows(made, WHO["stranger"], Pod("messaging", {"app": "shop"}), 8080)
