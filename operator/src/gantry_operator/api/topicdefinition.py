"""The definition of BrokerTopic for the API server.

A field is here only if it changes what a running broker does or sends to clients.  Settings that brokers only store are
left out (cleanup policy, kind of queue, retention time).
"""

from __future__ import annotations

from gantry.model.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, TOPIC_BYTES_MAX
from gantry_operator.api.brokertopic import KIND, MESSAGE_TYPES, PERMISSIONS, UNSPECIFIED
from gantry_operator.api.declared import Kind
from gantry_operator.api.fields import (
    APPLIED,
    FIXED,
    Names,
    Schema,
    choice,
    conditions,
    count,
    custom_kind,
    keyed,
    number,
    ready_columns,
    root,
    rule,
    shown,
    structure,
    text,
    words,
)
from gantry_operator.api.references import cluster_reference, policies, spec_of, stays, thing_name

QUEUES_MAX, GROUPS_MAX = 1024, 64
BODY_BYTES_MAX, PROPERTIES_MAX = 128 << 20, 32_767


def definition() -> Schema:
    """Return the CustomResourceDefinition as a document."""
    columns = [
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Topic", "string", ".status.topicName"),
        ("Write", "integer", ".spec.queues.write"),
        ("Read", "integer", ".spec.queues.read"),
        ("Type", "string", ".spec.messageType"),
    ]
    wide = [("Perm", "string", ".spec.permission")]
    made = root("A topic on the brokers of a cluster.", _spec(), _status(), thing_name(_TOPIC, _is_system()))
    return custom_kind(Names(KIND, Kind.TOPIC.value, "bt", ["mq"]), ready_columns(columns, wide), made)


_TOPIC = "topicName"


def _is_system() -> str:
    return f"n in {sorted(SYSTEM_TOPICS)} || n.startsWith('{SYSTEM_TOPIC_PREFIX}')"


def _spec() -> Schema:
    fewer = "Fewer are given up in order: first producers lose them, then consumers when they are read to their end."
    queues = structure(
        f"Number of queues on each group. {fewer}",
        {
            "write": number("Queues that producers use, on each group.", 8, 1, QUEUES_MAX, APPLIED),
            "read": number(
                "Queues that consumers read, on each group; at least as many as `write`.", 8, 1, QUEUES_MAX,
                "A change to more is applied within seconds; to fewer when they are read to their end, 45 s at least.",
            ),
        },
    )
    queues["x-kubernetes-validations"] = [
        rule("self.read >= self.write", "spec.queues.read: at least as many as spec.queues.write, or messages are lost")
    ]
    fields = {
        "clusterRef": cluster_reference(),
        "topicName": words(
            f"Name of the topic on the brokers. Empty: the object's name. {FIXED}",
            "",
            TOPIC_BYTES_MAX,
            "^([|_a-zA-Z0-9-][%|_a-zA-Z0-9-]*)?$",
        ),
        "queues": queues,
        "placement": structure("Which groups of the cluster have the topic.", {"groups": _groups()}),
        "permission": choice(
            "What clients may do with the topic: send and receive, only one of them, or nothing.",
            list(PERMISSIONS),
            "ReadWrite",
            APPLIED,
        ),
        "messageType": choice(
            "Which type of messages the topic takes: proxies refuse another one, and brokers too where "
            "`topics.check_message_type` is true. UNSPECIFIED and MIXED take all.",
            MESSAGE_TYPES,
            UNSPECIFIED,
            APPLIED,
        ),
        "limits": structure(
            "What the topic allows less of than its brokers do; a message beyond it is refused.",
            {
                "bodyBytes": _limit("Size of a message's body, in bytes", BODY_BYTES_MAX),
                "properties": _limit("Number of properties that the user gives a message", PROPERTIES_MAX),
            },
        ),
    }
    return spec_of(fields | policies("topic with its messages"), [stays(_TOPIC), stays("clusterRef")])


def _groups() -> Schema:
    return {
        "description": "Names of groups: b0, b1 and so on. Default: every group, also those that come later. A group "
        f"that is left out again takes no more messages, and goes on serving those that it has. {APPLIED}",
        "type": "array",
        "items": {"type": "string", "pattern": "^b[0-9]{1,2}$", "maxLength": 3},
        "maxItems": GROUPS_MAX,
        "x-kubernetes-list-type": "set",
        "default": [],
    }


def _limit(what: str, most: int) -> Schema:
    told = f"{what}, at most. From 0 to {most}. Without it: as the brokers allow. {APPLIED}"
    return {"description": told, "type": "integer", "minimum": 0, "maximum": most}


def _status() -> Schema:
    placement = shown(
        "The topic on one group.",
        {
            "group": text("Name of the group: b0, b1 and so on."),
            "epoch": count("Epoch of the master that said so."),
            "read": count("Number of queues that consumers read."),
            "write": count("Number of queues that producers use."),
            "permission": text("What clients may do: ReadWrite, Read, Write or None."),
        },
        ["group"],
    )
    return shown(
        "What was last observed; written by the operator alone.",
        {
            "observedGeneration": count("Generation (metadata.generation) that this status speaks of."),
            "topicName": text("Name of the topic on the brokers."),
            "conditions": conditions(),
            "placements": keyed("What each group has.", placement, "group", GROUPS_MAX),
        },
    )
