"""The definition of BrokerCluster for the API server: types, bounds, defaults and rules, made from one place.

`make crds` writes it, with those of the other kinds.  What cannot be changed yet in a running
cluster is refused here, with what to do instead: nothing is accepted and then ignored.  Other changes are applied to
the brokers, at once or by a rolling update (`plan`).
"""

from __future__ import annotations

from gantry_operator.api.brokercluster import GROUP, KIND, PLURAL
from gantry_operator.api.brokerfields import brokers
from gantry_operator.api.clusterstatus import cluster_status
from gantry_operator.api.doorfields import proxy, queues
from gantry_operator.api.fields import (
    LIVE,
    ROLLS,
    Names,
    Schema,
    choice,
    custom_kind,
    number,
    root,
    rule,
    structure,
    words,
)
from gantry_operator.api.podfields import pod_template, resources

FILE = f"{GROUP}_{PLURAL}.yaml"
NAMESERVERS_MAX, PULL_SECRETS_MAX, NAMESPACES_MAX = 5, 8, 16


def definition() -> Schema:
    """Return the CustomResourceDefinition as a document."""
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
    return root("A cluster of brokers and its name servers.", _spec(), cluster_status(), [rule(name, said)])


def _spec() -> Schema:
    return structure(
        "The cluster as it should be. `{}` is a cluster of one group with three members and two name servers.",
        {
            "image": words(
                "Image of brokers, name servers, proxies and servers of HTTP queues. Empty: the operator's own; when "
                "an upgrade of the operator changes that, its setting rollout.onOperatorUpgrade says when this "
                f"cluster takes the new one, and the condition ImageUpToDate what it waits for. {ROLLS}",
                "",
                512,
            ),
            "imagePullPolicy": choice(
                "When a node pulls the image. IfNotPresent: when it does not have it. Always: at each start of a pod. "
                "Never: it has to be there.",
                ["IfNotPresent", "Always", "Never"],
                "IfNotPresent",
                ROLLS,
            ),
            "imagePullSecrets": {
                "description": "Names of Secrets of this namespace with which images are pulled. Default: none. "
                f"{ROLLS}",
                "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 253},
                "maxItems": PULL_SECRETS_MAX, "default": [],
            },
            "nameserver": structure(
                "Name servers: they tell clients which brokers have a topic, and keep nothing on disk.",
                {
                    "replicas": number(
                        "Number of name servers. A change replaces the pods of brokers, proxies and servers of HTTP "
                        "queues, one after the other, since each broker registers at every name server.",
                        2,
                        1,
                        NAMESERVERS_MAX,
                    ),
                    "podTemplate": pod_template("name servers"),
                    "resources": resources("the name server's container"),
                },
            ),
            "brokers": brokers(),
            "proxy": proxy(),
            "queues": queues(),
            "networkPolicy": structure(
                "Who may connect, where the network of your Kubernetes enforces NetworkPolicies.",
                {
                    "clients": choice(
                        "Who may send and receive. Labelled: pods of any namespace with the label "
                        "gantrymq.io/client=yes. Any: everybody. Unguarded: every port is open to everybody.",
                        ["Labelled", "Any", "Unguarded"],
                        "Labelled",
                        LIVE,
                    ),
                    "metricsNamespaces": {
                        "description": "Namespaces whose pods may read metrics (port 9404). Default: none is named, "
                        f"and everybody may. {LIVE}",
                        "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 63},
                        "maxItems": NAMESPACES_MAX, "default": [],
                    },
                },
            ),
            "deletionPolicy": choice(
                "What becomes of volumes and registers when the cluster is deleted, or a member is taken away. Retain: "
                "they stay, and the same cluster applied again has every message. Delete: they are deleted too.",
                ["Retain", "Delete"],
                "Retain",
                LIVE,
            ),
        },
    )  # fmt: skip
