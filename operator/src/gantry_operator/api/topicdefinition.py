"""The definition of BrokerTopic for the API server.

A field is here because a running broker behaves otherwise for it, or tells it to clients; what brokers only keep
(cleanup policy, kind of queue, time to keep) is not.
"""

from __future__ import annotations

from gantry.model.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, TOPIC_BYTES_MAX
from gantry_operator.api.brokertopic import KIND, MESSAGE_TYPES, PERMISSIONS, UNSPECIFIED
from gantry_operator.api.declared import Kind
from gantry_operator.api.fields import (
    Names,
    Schema,
    choice,
    conditions,
    custom_kind,
    keyed,
    number,
    ready_columns,
    root,
    rule,
    structure,
    words,
)
from gantry_operator.api.references import cluster_reference, policies, spec_of, stays, thing_name

QUEUES_MAX, GROUPS_MAX = 1024, 64
BODY_BYTES_MAX, PROPERTIES_MAX = 128 << 20, 32_767


def definition() -> Schema:
    """The CustomResourceDefinition."""
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
    queues = structure(
        "Of each group. Fewer are given up in order: first nobody writes to them, and reading ends when they are read.",
        {
            "write": number("Queues that producers use.", 8, 1, QUEUES_MAX),
            "read": number("Queues that consumers read.", 8, 1, QUEUES_MAX),
        },
    )
    queues["x-kubernetes-validations"] = [
        rule("self.read >= self.write", "spec.queues.read: at least as many as spec.queues.write, or messages are lost")
    ]
    fields = {
        "clusterRef": cluster_reference(),
        "topicName": words(
            "On the brokers; empty: the object's name.", "", TOPIC_BYTES_MAX, "^([|_a-zA-Z0-9-][%|_a-zA-Z0-9-]*)?$"
        ),
        "queues": queues,
        "placement": structure("Where it is.", {"groups": _groups()}),
        "permission": choice("What clients may do.", list(PERMISSIONS), "ReadWrite"),
        "messageType": choice("Type of messages it takes; UNSPECIFIED, MIXED: all.", MESSAGE_TYPES, UNSPECIFIED),
        "limits": structure(
            "What it allows less of than its brokers do; a message beyond them is refused.",
            {
                "bodyBytes": _limit("Bytes of a message's body.", BODY_BYTES_MAX),
                "properties": _limit("Properties that the user gives a message.", PROPERTIES_MAX),
            },
        ),
    }
    return spec_of(fields | policies("topic with its messages"), [stays(_TOPIC), stays("clusterRef")])


def _groups() -> Schema:
    return {
        "description": "b0, b1, ...; none: every group, also those that come later. A group that is left out again "
        "takes no more messages, and goes on serving those that it has.",
        "type": "array",
        "items": {"type": "string", "pattern": "^b[0-9]{1,2}$", "maxLength": 3},
        "maxItems": GROUPS_MAX,
        "x-kubernetes-list-type": "set",
        "default": [],
    }


def _limit(description: str, most: int) -> Schema:
    return {"description": f"{description} Absent: no limit.", "type": "integer", "minimum": 0, "maximum": most}


def _status() -> Schema:
    integer, string = {"type": "integer"}, {"type": "string"}
    placement = {
        "type": "object",
        "required": ["group"],
        "properties": {
            "group": string, "epoch": integer, "read": integer, "write": integer, "permission": string,
        },
    }  # fmt: skip
    return {
        "type": "object",
        "properties": {
            "observedGeneration": integer,
            "topicName": string,
            "conditions": conditions(),
            "placements": keyed(placement, "group", GROUPS_MAX),
        },
    }
