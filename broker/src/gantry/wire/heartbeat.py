"""Heartbeats: every thirty seconds a client sends its id, its producer and consumer groups and its subscriptions.

The body is RocketMQ's `HeartbeatData`.  Accepted beyond Java's spelling: enums as numbers (C++ sends their ordinals),
sets that are missing or null, numbers as text (Go).  An unknown enum text counts as the default, because a newer
client may send values that we do not know.  A body without the client's id, or that is no heartbeat at all, is a
MalformedBodyError.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.model import documents, names
from gantry.model.subscription import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    CONSUME_POP,
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    Subscription,
)
from gantry.wire.bodies import MalformedBodyError, asked, dumps

ENTRIES_MAX = 2_000

# In the order of Java's enums, because C++ sends the ordinal.
_CONSUME_TYPES = (CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP)
_MESSAGE_MODELS = (BROADCASTING, CLUSTERING)
_CONSUME_FROM = (
    FROM_LAST_OFFSET,
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    FROM_FIRST_OFFSET,
    FROM_TIMESTAMP,
)


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One consumer of the client; its settings count for its whole group."""

    group: str
    subscriptions: tuple[Subscription, ...] = ()
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_LAST_OFFSET
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One client's groups.  `fingerprint` and `without_sub` belong to the newer heartbeat, which is not offered."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False


def read(body: bytes | bytearray | memoryview) -> Heartbeat:
    """The heartbeat in a body; MalformedBodyError names what is wrong."""
    # Counted before anything is made of them: each costs some ten microseconds.
    entries = bytes(body).count(b"{")
    if entries > ENTRIES_MAX:
        raise MalformedBodyError(
            f"heartbeat: {entries} groups and subscriptions, {ENTRIES_MAX} are allowed; use more clients"
        )
    source = asked(body)
    try:
        heartbeat = Heartbeat(
            client_id=documents.text(source, "clientID"),
            producer_groups=tuple(_group(data) for data in documents.array(source, "producerDataSet")),
            consumers=tuple(_consumer(data) for data in documents.array(source, "consumerDataSet")),
            fingerprint=documents.integer(source, "heartbeatFingerprint"),
            without_sub=documents.boolean(source, "withoutSub"),
        )
    except ValueError as error:
        raise MalformedBodyError(f"heartbeat: {error}") from error
    if not heartbeat.client_id:
        raise MalformedBodyError("heartbeat: clientID is missing")
    fault = names.client_fault(heartbeat.client_id)
    if fault is not None:
        raise MalformedBodyError(f"heartbeat: {fault}")
    return heartbeat


def write(heartbeat: Heartbeat) -> bytes:
    """The body of a heartbeat, as Java writes it."""
    return dumps(
        {
            "clientID": heartbeat.client_id,
            "consumerDataSet": [
                {
                    "consumeFromWhere": consumer.consume_from_where,
                    "consumeType": consumer.consume_type,
                    "groupName": consumer.group,
                    "messageModel": consumer.message_model,
                    "subscriptionDataSet": [subscription.to_json() for subscription in consumer.subscriptions],
                    "unitMode": consumer.unit_mode,
                }
                for consumer in heartbeat.consumers
            ],
            "heartbeatFingerprint": heartbeat.fingerprint,
            "producerDataSet": [{"groupName": group} for group in heartbeat.producer_groups],
            "withoutSub": heartbeat.without_sub,
        }
    )


def _group(value: object) -> str:
    return documents.text(documents.document(value, "a producer"), "groupName")


def _consumer(value: object) -> ConsumerData:
    source = documents.document(value, "a consumer")
    return ConsumerData(
        group=documents.text(source, "groupName"),
        subscriptions=tuple(
            Subscription.from_json(subscription) for subscription in documents.array(source, "subscriptionDataSet")
        ),
        consume_type=_enum(source, "consumeType", _CONSUME_TYPES, CONSUME_PASSIVELY),
        message_model=_enum(source, "messageModel", _MESSAGE_MODELS, CLUSTERING),
        consume_from_where=_enum(source, "consumeFromWhere", _CONSUME_FROM, FROM_LAST_OFFSET),
        unit_mode=documents.boolean(source, "unitMode"),
    )


def _enum(source: documents.Document, name: str, names: tuple[str, ...], default: str) -> str:
    """One of the names, by name or by number."""
    value = source.get(name)
    if isinstance(value, str) and value in names:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    return default
