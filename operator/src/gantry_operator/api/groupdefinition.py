"""The definition of ConsumerGroup for the API server.

A field is here only if it changes what a broker or a proxy does.  Retry policies are left out: consumers that pull
decide them themselves, and for gRPC clients the proxy reads them from the group's configuration, which is set by
RocketMQ's tools or `Admin.create_group`.
"""

from __future__ import annotations

from gantry.model.names import GROUP_BYTES_MAX, SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, TOPIC_BYTES_MAX
from gantry_operator.api.consumergroup import KIND, POSITIONS
from gantry_operator.api.declared import Kind
from gantry_operator.api.fields import (
    APPLIED,
    FIXED,
    Names,
    Schema,
    conditions,
    count,
    custom_kind,
    flag,
    keyed,
    number,
    ready_columns,
    root,
    rule,
    shown,
    structure,
    text,
    without_default,
    words,
)
from gantry_operator.api.references import cluster_reference, policies, spec_of, stays, thing_name

GROUPS_MAX, TOPICS_MAX, ATTEMPTS_MAX = 64, 64, 1000
_NAME = "groupName"


def definition() -> Schema:
    """Return the CustomResourceDefinition as a document."""
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
        f"Name of the consumer group on the brokers. Empty: the object's name. {FIXED}",
        "",
        GROUP_BYTES_MAX,
        "^([|_a-zA-Z0-9-][%|_a-zA-Z0-9-]*)?$",
    )
    fields = {
        "clusterRef": cluster_reference(),
        "groupName": name,
        "enabled": flag("Whether brokers give the group messages.", True, APPLIED),
        "broadcast": flag(
            "Whether members may each read everything. false: brokers give members that want that nothing.",
            False,
            APPLIED,
        ),
        "orderly": without_default(
            flag(
                "Whether clients that speak gRPC (RocketMQ 5) get the messages of a queue in order, one batch at a "
                "time (consumeMessageOrderly). Without it: as it is on the brokers; false for a new group. Consumers "
                "that pull decide it themselves.",
                False,
                f"{APPLIED} Clients that run learn it within five minutes.",
            )
        ),
        "retry": structure(
            "What becomes of messages that a member failed to consume.",
            {
                "maxAttempts": number(
                    "How often a message is delivered again before it is a dead letter; a consumer that asks for "
                    "another number gets that one.",
                    16,
                    0,
                    ATTEMPTS_MAX,
                    APPLIED,
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
    request = words(
        "Identifies the reset, which is carried out once. A change of it is another reset.", "", 63, "^[-._a-zA-Z0-9]+$"
    )
    next_one = "A change counts for the next requestId."
    topic = words(f"Topic in which the group goes on elsewhere. {next_one}", "", TOPIC_BYTES_MAX, "^[%|_a-zA-Z0-9-]+$")
    target = {
        "description": "Where to go on: at a time, or at an end of the queues; exactly one of them.",
        "type": "object",
        "properties": {
            "timestamp": {
                "description": "At the first message of each queue that was stored at this time or later, as RFC 3339 "
                f"(2026-01-31T12:00:00Z). {next_one}",
                "type": "string", "format": "date-time",
            },
            "position": {
                "description": "Earliest: at the oldest message of each queue. Latest: behind the newest. "
                f"{next_one}",
                "type": "string", "enum": list(POSITIONS),
            },
        },
        "x-kubernetes-validations": [
            rule(
                "has(self.timestamp) != has(self.position)",
                "spec.resetOffset.to: either a timestamp or a position",
            )
        ],
    }  # fmt: skip
    made = structure(
        "Let the group go on elsewhere in a topic, once for each requestId; it waits until no member is online.",
        {
            "requestId": without_default(request),
            "topic": without_default(topic),
            "to": target,
            "force": flag("Whether it is done also while members are online; they are told.", False, next_one),
        },
    )
    return without_default(made) | {"required": ["requestId", "topic", "to"]}


def _status() -> Schema:
    lag = shown(
        "The lag in one topic.",
        {"topic": text("Name of the topic."), "messages": count("Messages that are not consumed, to two digits.")},
        ["topic"],
    )
    place = shown(
        "The consumer group on one group of brokers.",
        {"group": text("Name of the group: b0, b1 and so on."), "epoch": count("Epoch of the master that said so.")},
        ["group"],
    )
    reset = {
        "requestId": text("Which reset: its requestId."),
        "result": text("What became of it: Running, or what was done."),
        "at": {"description": "When that was written.", "type": "string", "format": "date-time"},
    }
    return shown(
        "What was last observed; written by the operator alone.",
        {
            "observedGeneration": count("Generation (metadata.generation) that this status speaks of."),
            "groupName": text("Name of the consumer group on the brokers."),
            "conditions": conditions(),
            "placements": keyed("On which groups of brokers it was found.", place, "group", GROUPS_MAX),
            "members": count("Consumers that are connected, to two digits; looked at once a minute."),
            "lag": keyed("Messages that wait, by topic; looked at once a minute.", lag, "topic", TOPICS_MAX),
            "lastReset": shown("The last reset of offsets that was begun.", reset),
        },
    )
