"""The fields that every declared kind has (`declared`), for the API server; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gantry_operator.api.declared import DELETE, MANAGED, OBSERVE, RETAIN
from gantry_operator.api.fields import APPLIED, FIXED, Schema, choice, rule, structure, without_default, words

_STAYS = "cannot be changed: apply another object for another one"


def spec_of(fields: Schema, rules: Sequence[Schema]) -> Schema:
    """A specification that has to name its cluster, and so has no default."""
    made = structure("What the brokers of the cluster should have.", fields)
    del made["default"]
    return made | {"required": ["clusterRef"], "x-kubernetes-validations": list(rules)}


def cluster_reference() -> Schema:
    """Return the schema of `clusterRef`: the name of a BrokerCluster in the same namespace."""
    told = f"Name of a BrokerCluster in the same namespace. {FIXED}"
    name = without_default(words(told, "", 40, "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"))
    made = structure(f"The cluster whose brokers it is about. {FIXED}", {"name": name})
    del made["default"]
    return made | {"required": ["name"]}


def policies(what: str) -> Schema:
    """Return the schemas of `managementPolicy` and `deletionPolicy`."""
    return {
        "managementPolicy": choice(
            f"{MANAGED}: the {what} is made and kept as this object says. {OBSERVE}: it is looked at, and never made, "
            "changed or deleted.",
            [MANAGED, OBSERVE],
            MANAGED,
            APPLIED,
        ),
        "deletionPolicy": choice(
            f"What becomes of the {what} when this object is deleted. {RETAIN}: it stays on the brokers. {DELETE}: it "
            "is deleted there first, and the object waits for that.",
            [RETAIN, DELETE],
            RETAIN,
            "A change takes effect at once.",
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
