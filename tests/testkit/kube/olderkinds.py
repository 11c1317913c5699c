"""The kinds as an earlier version might have had them: without a field and a rule, with a field that was given up."""

from __future__ import annotations

import copy
from typing import Any

from gantry_operator.api import schema

NEW, GONE = "image", "flavour"
REFUSED_LATER = {"brokers": {"replicasPerGroup": 2, "profile": "durable"}}


def definition() -> dict[str, Any]:
    """Of BrokerCluster."""
    made = copy.deepcopy(schema.definition())
    spec = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"][NEW]
    del spec["default"][NEW]
    spec["properties"][GONE] = {"type": "string"}
    brokers = spec["properties"]["brokers"]
    assert brokers.pop("x-kubernetes-validations"), "the rule that an upgrade brings"
    return made
