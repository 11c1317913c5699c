"""The definition of BrokerCluster for the API server: types, bounds, defaults and rules, made from one place.

`python -m gantry_operator.api.schema FOLDER...` writes it (`make crds`).  Every field has a default, so that a rule
about its change sees it always; a rule on a field that is not there does not run.  What cannot be changed yet in a
running cluster is refused here, with what to do instead: nothing is accepted and then ignored; what can be changed is
rolled out (`plan`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from gantry_operator.api.brokercluster import GROUP, KIND, PLURAL, Profile
from gantry_operator.api.fields import (
    Names,
    Schema,
    choice,
    conditions,
    custom_kind,
    keyed,
    number,
    root,
    rule,
    structure,
    text_of,
    words,
)

FILE = f"{GROUP}_{PLURAL}.yaml"
GROUPS_MAX, REPLICAS_MAX, NAMESERVERS_MAX, CONFIG_MAX = 64, 5, 5, 64
OWNED = (
    "cluster", "name", "id", "role", "name_servers", "store.root", "store.flush", "standalone.nameserver_port",
)  # fmt: skip
OWNED_SECTIONS = ("network.", "replication.")
_FIXED = (
    "cannot be changed in a running cluster yet: delete the BrokerCluster and apply it anew, its volumes are kept and "
    "every message is back"
)
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTP]i?)?$"


def definition() -> Schema:
    """The CustomResourceDefinition."""
    return custom_kind(Names(KIND, PLURAL, "bc", ["mq", "all"]), _columns(), _root())


def text() -> str:
    """As YAML."""
    return text_of(definition(), "gantry_operator.api.schema")


def _columns() -> list[Schema]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        {"name": "Ready", "type": "string", "jsonPath": f"{ready}.status"},
        {"name": "Masters", "type": "string", "jsonPath": ".status.summary.masters"},
        {"name": "InSync", "type": "string", "jsonPath": ".status.summary.inSync"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Reason", "type": "string", "jsonPath": f"{ready}.reason", "priority": 1},
        {"name": "Profile", "type": "string", "jsonPath": ".spec.brokers.profile", "priority": 1},
    ]


def _root() -> Schema:
    name = "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')"
    said = "metadata.name: lower-case letters, digits and '-', beginning with a letter, 40 characters at most"
    return root("A cluster of brokers and its name servers.", _spec(), _status(), [rule(name, said)])


def _spec() -> Schema:
    return structure(
        "What is wanted.",
        {
            "image": words("Image of brokers and name servers; empty: the operator's.", "", 512),
            "nameserver": structure(
                "Name servers tell clients where brokers are.",
                {
                    "replicas": number(
                        "How many; another number replaces brokers one after the other.", 2, 1, NAMESERVERS_MAX
                    ),
                    "resources": _resources(),
                },
            ),
            "brokers": _brokers(),
        },
    )


def _brokers() -> Schema:
    owned = " || ".join([f"k in {list(OWNED)}", *(f"k.startsWith('{each}')" for each in OWNED_SECTIONS)])
    config = {
        "description": "Keys of broker.yaml, dotted, beyond those that the operator sets.",
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 1024},
        "maxProperties": CONFIG_MAX,
        "default": {},
        "x-kubernetes-validations": [
            {
                "rule": f"!self.exists(k, {owned})",
                "message": "spec.brokers.config: the operator itself sets names, role, addresses, folders, replication",
            }
        ],
    }
    brokers = structure(
        "Groups of one master and its slaves.",
        {
            "groups": number("How many groups; may grow.", 1, 1, GROUPS_MAX),
            "replicasPerGroup": _fixed(
                number("Members of each.", 3, 1, REPLICAS_MAX), "spec.brokers.replicasPerGroup"
            ),
            "profile": _fixed(
                choice("When a message is acknowledged.", [each.value for each in Profile], Profile.DURABLE.value),
                "spec.brokers.profile",
            ),
            "failover": structure(
                "How patient a group is with its master.",
                {
                    "timers": _fixed(
                        choice("Suspicion after 5 s, or after 2 s.", ["default", "fast"], "default"),
                        "spec.brokers.failover.timers",
                    )
                },
            ),
            "storage": structure(
                "A volume for each member; kept when the cluster is deleted.",
                {
                    "size": _fixed(
                        words("As a volume claim asks for it.", "100Gi", 32, _QUANTITY), "spec.brokers.storage.size"
                    ),
                    "storageClassName": _fixed(
                        words("Empty: the default class.", "", 253), "spec.brokers.storage.storageClassName"
                    ),
                },
            ),
            "antiAffinity": choice(
                "Whether members of a group may share a node.", ["Required", "Preferred", "None"], "Preferred"
            ),
            "config": config,
            "resources": _resources(),
        },
    )
    brokers["x-kubernetes-validations"] = [
        {
            "rule": "self.profile == 'fast' || self.replicasPerGroup >= 3",
            "message": "spec.brokers.replicasPerGroup: profiles durable and replicated want 3 members, so that writing "
            "goes on when one is lost; profile fast takes any number",
        },
        {
            "rule": "self.groups >= oldSelf.groups",
            "message": "spec.brokers.groups: a group cannot be taken away yet, its messages would go with it",
        },
    ]
    return brokers


def _status() -> Schema:
    integer, string = {"type": "integer"}, {"type": "string"}
    group = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": string, "lease": string, "epoch": integer, "phase": string,
            "syncSet": {"type": "array", "items": integer},
            "master": {"type": "object", "properties": {"ordinal": integer, "pod": string}},
        },
    }  # fmt: skip
    summary = ("masters", "inSync", "ready", "updated", "nameservers")
    return {
        "type": "object",
        "properties": {
            "observedGeneration": integer,
            "groupCount": integer,
            "image": string,
            "summary": {"type": "object", "properties": dict.fromkeys(summary, string)},
            "conditions": conditions(),
            "groups": keyed(group, "name", GROUPS_MAX),
        },
    }


def _fixed(schema: Schema, path: str) -> Schema:
    rules = [*schema.get("x-kubernetes-validations", []), {"rule": "self == oldSelf", "message": f"{path} {_FIXED}"}]
    return schema | {"x-kubernetes-validations": rules}


def _resources() -> Schema:
    amount = {"x-kubernetes-int-or-string": True, "maxLength": 32}
    amounts = {"type": "object", "additionalProperties": amount, "maxProperties": 16}
    return structure("As of a container.", {"requests": amounts, "limits": amounts})


def main() -> None:
    for folder in sys.argv[1:]:
        Path(folder, FILE).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
