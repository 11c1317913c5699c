"""The definition of ConsumerGroup for the API server.

A field is here because a running broker behaves otherwise for it; what brokers only keep (orderly delivery, policies of
retrying, which consumers themselves decide) is not.
"""

from __future__ import annotations

from gantry.model.names import GROUP_BYTES_MAX, SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, TOPIC_BYTES_MAX
from gantry_operator.api.consumergroup import KIND, POSITIONS
from gantry_operator.api.declared import Kind
from gantry_operator.api.fields import (
    Names,
    Schema,
    conditions,
    custom_kind,
    flag,
    keyed,
    number,
    ready_columns,
    root,
    rule,
    structure,
    words,
)
from gantry_operator.api.references import cluster_reference, policies, spec_of, stays, thing_name

GROUPS_MAX, TOPICS_MAX, ATTEMPTS_MAX = 64, 64, 1000
_NAME = "groupName"


def definition() -> Schema:
    """The CustomResourceDefinition."""
    consuming = '.status.conditions[?(@.type=="Consuming")].status'
    columns = [
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Group", "string", ".status.groupName"),
        ("Members", "integer", ".status.members"),
        ("Consuming", "string", consuming),
    ]
    wide = [("Enabled", "boolean", ".spec.enabled")]
    rules = thing_name(_NAME, _is_system())
    made = root("A group of consumers on the brokers of a cluster.", _spec(), _status(), rules)
    return custom_kind(Names(KIND, Kind.CONSUMER_GROUP.value, "cg", ["mq"]), ready_columns(columns, wide), made)


def _is_system() -> str:
    return f"n in {sorted(SYSTEM_GROUPS)} || n.startsWith('{SYSTEM_GROUP_PREFIX}')"


def _spec() -> Schema:
    name = words(
        "On the brokers; empty: the object's name.", "", GROUP_BYTES_MAX, "^([|_a-zA-Z0-9-][%|_a-zA-Z0-9-]*)?$"
    )
    fields = {
        "clusterRef": cluster_reference(),
        "groupName": name,
        "enabled": flag("No: brokers give the group no messages.", True),
        "broadcast": flag("Yes: members may each read everything; no: brokers give such members nothing.", False),
        "retry": structure(
            "Messages that a member failed to consume.",
            {
                "maxAttempts": number(
                    "How often one is delivered again before it is a dead letter; a consumer that asks for another "
                    "number has its way.",
                    16,
                    0,
                    ATTEMPTS_MAX,
                )
            },
        ),
        "resetOffset": _reset(),
    }
    rules = [
        stays(_NAME),
        stays("clusterRef"),
        rule(
            "!self.broadcast || !has(self.resetOffset)",
            "spec.resetOffset: members of a broadcasting group keep their offsets themselves; reset them there",
        ),
    ]
    return spec_of(fields | policies("group with its offsets and redeliveries"), rules)


def _reset() -> Schema:
    request = words("Another value is another reset; each is carried out once.", "", 63, "^[-._a-zA-Z0-9]+$")
    topic = words("In which topic.", "", TOPIC_BYTES_MAX, "^[%|_a-zA-Z0-9-]+$")
    for each in request, topic:
        del each["default"]
    target = {
        "description": "Where to go on: at an instant, or at an end.",
        "type": "object",
        "properties": {
            "timestamp": {
                "description": "The first message stored at or after it.", "type": "string", "format": "date-time",
            },
            "position": {"description": "An end of every queue.", "type": "string", "enum": list(POSITIONS)},
        },
        "x-kubernetes-validations": [
            rule(
                "has(self.timestamp) != has(self.position)",
                "spec.resetOffset.to: either a timestamp or a position",
            )
        ],
    }  # fmt: skip
    made = structure(
        "Let the group go on elsewhere in a topic, once; it waits until no member is online.",
        {
            "requestId": request,
            "topic": topic,
            "to": target,
            "force": flag("Also while members are online; they are told.", False),
        },
    )
    del made["default"]
    return made | {"required": ["requestId", "topic", "to"]}


def _status() -> Schema:
    integer, string = {"type": "integer"}, {"type": "string"}
    lag = {"type": "object", "required": ["topic"], "properties": {"topic": string, "messages": integer}}
    place = {"type": "object", "required": ["group"], "properties": {"group": string, "epoch": integer}}
    reset = {
        "requestId": string, "result": string, "at": {"type": "string", "format": "date-time"},
    }  # fmt: skip
    return {
        "type": "object",
        "properties": {
            "observedGeneration": integer,
            "groupName": string,
            "conditions": conditions(),
            "placements": keyed(place, "group", GROUPS_MAX),
            "members": integer,
            "lag": keyed(lag, "topic", TOPICS_MAX),
            "lastReset": {"type": "object", "properties": reset},
        },
    }
