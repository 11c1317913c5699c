"""What a client is given to find a cluster."""

from __future__ import annotations

import base64

from gantry_operator.api.brokercluster import Image
from gantry_operator.desired import binding, nameservers
from testkit.kube.clusters import cluster


def test_a_binding_says_where_name_servers_are_in_rocketmqs_words() -> None:
    (secret,) = binding.objects(cluster())
    found = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
    assert found == {
        "type": "rocketmq",
        "provider": "gantrymq",
        "host": "orders-nameserver.messaging",
        "port": "9876",
        "nameservers": "orders-ns-0.orders-ns.messaging:9876;orders-ns-1.orders-ns.messaging:9876",
    }
    assert secret["type"] == "servicebinding.io/rocketmq"


def test_its_names_are_those_of_services_that_are_made() -> None:
    wanted = cluster()
    made = nameservers.objects(wanted, Image("image:1", "IfNotPresent", ()))
    services = {each["metadata"]["name"] for each in made if each["kind"] == "Service"}
    entries = binding.entries(wanted)
    assert entries["host"].partition(".")[0] in services
    assert all(each.split(".")[1] in services for each in entries["nameservers"].split(";"))


def test_a_binding_goes_with_its_cluster_and_its_status_names_it() -> None:
    (secret,) = binding.objects(cluster())
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert secret["metadata"]["name"] == binding.name_of(cluster()) == "orders-binding"
