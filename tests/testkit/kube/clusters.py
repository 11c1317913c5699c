"""BrokerClusters for tests, as the API server would hand them out: with every default in."""

from __future__ import annotations

import copy
from typing import Any

from gantry_operator.api.brokercluster import BrokerCluster, read
from gantry_operator.api.schema import definition

Document = dict[str, Any]


def document(**brokers: object) -> Document:
    """An object; `brokers` replaces fields of spec.brokers, and of the objects below it those that are named."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = copy.deepcopy(schema["properties"]["spec"]["default"])
    for name, value in brokers.items():
        former = spec["brokers"].get(name)
        is_part = isinstance(former, dict) and isinstance(value, dict)
        spec["brokers"][name] = former | value if is_part else value
    metadata = {"namespace": "messaging", "name": "orders", "uid": "u-1", "generation": 1, "resourceVersion": "1"}
    return {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster", "metadata": metadata, "spec": spec}


def cluster(**brokers: object) -> BrokerCluster:
    """The same as a value."""
    return read(document(**brokers))
