"""The fields that every declared kind has (`declared`), for the API server; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gantry_operator.api.declared import DELETE, MANAGED, OBSERVE, RETAIN
from gantry_operator.api.fields import Schema, choice, rule, structure, words

_STAYS = "cannot be changed: apply another object for another one"


def spec_of(fields: Schema, rules: Sequence[Schema]) -> Schema:
    """A specification that has to name its cluster, and so has no default."""
    made = structure("What is wanted.", fields)
    del made["default"]
    return made | {"required": ["clusterRef"], "x-kubernetes-validations": list(rules)}


def cluster_reference() -> Schema:
    """Which cluster."""
    name = words("Of a BrokerCluster in the same namespace.", "", 40, "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")
    del name["default"]
    made = structure("The cluster.", {"name": name})
    del made["default"]
    return made | {"required": ["name"]}


def policies(what: str) -> Schema:
    """Who changes it, and what becomes of it."""
    return {
        "managementPolicy": choice(
            f"{OBSERVE}: it is looked at, and never made, changed or deleted.", [MANAGED, OBSERVE], MANAGED
        ),
        "deletionPolicy": choice(
            f"{DELETE}: the {what} is deleted from the brokers when this object is deleted.", [RETAIN, DELETE], RETAIN
        ),
    }


def stays(field: str) -> Schema:
    """A rule: this field of the specification never changes."""
    return rule(f"self.{field} == oldSelf.{field}", f"spec.{field} {_STAYS}")


def thing_name(field: str, is_system: str) -> list[Schema]:
    """Rules on the whole object: brokers allow the name (`is_system` is CEL that says of `n` that they do not)."""
    given, own = f"self.spec.{field}", "self.metadata.name"
    name = f"({given} != '' ? {given} : {own})"
    return [
        rule(
            f"{given} != '' || {own}.matches('^[-a-z0-9]{{1,120}}$')",
            f"spec.{field}: brokers do not allow a name with '.', and at most 120 characters of this one; give another",
        ),
        rule(
            f"![{name}].exists(n, {is_system})", f"spec.{field}: brokers keep topics and groups of this name themselves"
        ),
    ]
