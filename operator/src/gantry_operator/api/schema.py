"""The definition of BrokerCluster for the API server: types, bounds, defaults and rules, made from one place.

`make crds` writes it, with those of the other kinds.  What cannot be changed yet in a running
cluster is refused here, with what to do instead: nothing is accepted and then ignored; what can be changed is brought
to the brokers, at once or by a rolling update (`plan`).
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP, KIND, PLURAL
from gantry_operator.api.brokerfields import GROUPS_MAX, brokers, pod_template, resources
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
    words,
)

FILE = f"{GROUP}_{PLURAL}.yaml"
NAMESERVERS_MAX, PULL_SECRETS_MAX, NAMESPACES_MAX = 5, 8, 16


def definition() -> Schema:
    """The CustomResourceDefinition."""
    made = custom_kind(Names(KIND, PLURAL, "bc", ["mq", "all"]), _columns(), _root())
    (version,) = made["spec"]["versions"]
    version["subresources"]["scale"] = {
        "specReplicasPath": ".spec.brokers.groups",
        "statusReplicasPath": ".status.groupCount",
        "labelSelectorPath": ".status.selector",
    }
    return made


def _columns() -> list[Schema]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    shown = {"Ready": f"{ready}.status", "Masters": ".status.summary.masters", "InSync": ".status.summary.inSync"}
    wide = {
        "Reason": f"{ready}.reason", "Profile": ".spec.brokers.profile", "Mode": ".status.mode",
        "Flush": ".status.flush", "NS": ".status.summary.nameservers", "Rollout": ".status.summary.updated",
    }  # fmt: skip
    return [
        *({"name": name, "type": "string", "jsonPath": path} for name, path in shown.items()),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        *({"name": name, "type": "string", "jsonPath": path, "priority": 1} for name, path in wide.items()),
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
            "imagePullPolicy": choice("As of a container.", ["IfNotPresent", "Always", "Never"], "IfNotPresent"),
            "imagePullSecrets": {
                "description": "Names of Secrets of this namespace with which images are pulled.",
                "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 253},
                "maxItems": PULL_SECRETS_MAX, "default": [],
            },
            "nameserver": structure(
                "Name servers tell clients where brokers are.",
                {
                    "replicas": number(
                        "How many; another number replaces brokers one after the other.", 2, 1, NAMESERVERS_MAX
                    ),
                    "podTemplate": pod_template(),
                    "resources": resources(),
                },
            ),
            "brokers": brokers(),
            "networkPolicy": structure(
                "Who may connect, where the cluster's network enforces NetworkPolicies.",
                {
                    "clients": choice(
                        "Labelled: pods of any namespace with the label gantrymq.io/client=yes; Any: everybody may "
                        "send and receive; Unguarded: every port is open to everybody.",
                        ["Labelled", "Any", "Unguarded"],
                        "Labelled",
                    ),
                    "metricsNamespaces": {
                        "description": "Namespaces whose pods may read metrics (port 9404); empty: everybody.",
                        "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 63},
                        "maxItems": NAMESPACES_MAX, "default": [],
                    },
                },
            ),
            "deletionPolicy": choice(
                "What becomes of volumes and registers of a deleted cluster, and of members that are taken away.",
                ["Retain", "Delete"],
                "Retain",
            ),
        },
    )  # fmt: skip


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
    request = {
        "type": "object", "required": ["name"], "properties": dict.fromkeys(("name", "value", "outcome"), string),
    }  # fmt: skip
    summary = ("masters", "inSync", "ready", "updated", "nameservers")
    return {
        "type": "object",
        "properties": {
            "observedGeneration": integer,
            "groupCount": integer,
            "selector": string,
            "image": string,
            "mode": string,
            "flush": string,
            "binding": {"type": "object", "properties": {"name": string}},
            "summary": {"type": "object", "properties": dict.fromkeys(summary, string)},
            "conditions": conditions(),
            "requests": keyed(request, "name", 8),
            "groups": keyed(group, "name", GROUPS_MAX),
        },
    }
