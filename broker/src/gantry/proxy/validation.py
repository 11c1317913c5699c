"""Which messages a producer may send: RocketMQ's limits and their codes (facts: protocol, section 10.6).  Pure.

A message's type is what its properties make of it, as a broker sees it: TRANSACTION by its declared type, else DELAY by
a delivery time, else FIFO by a message group, else NORMAL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gantry.model.message import RESERVED_PROPERTIES, TRANSIENT_PREFIX
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

BODY_BYTES_MAX = 4 << 20
MESSAGES_MAX = 1_000  # of one request; RocketMQ: only their bytes are limited
PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 << 10
GROUP_BYTES_MAX = 64  # a message group is shorter
MESSAGE_ID_BYTES_MAX = 255
DELAY_MAX_MS = 24 * 3600 * 1000  # RocketMQ's proxy: maxDelayTimeMills
RECOVERY_MAX_S = 3600
INVISIBLE_MIN_MS, INVISIBLE_MAX_MS = 10_000, 12 * 3600 * 1000
_SENT_TYPES = (pb.MESSAGE_TYPE_UNSPECIFIED, pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)


def one_topic(messages: Sequence[pb.Message]) -> pb.Resource:
    """Return the topic of all messages of a request; FaultError when they have several, or there is no message."""
    if not messages:
        raise FaultError(pb.MESSAGE_CORRUPTED, "no message to send")
    if len(messages) > MESSAGES_MAX:
        text = f"{len(messages)} messages in a request, {MESSAGES_MAX} are allowed; send several requests"
        raise FaultError(pb.BAD_REQUEST, text)
    if len({message.topic.name for message in messages}) > 1:
        raise FaultError(pb.MESSAGE_CORRUPTED, "topic in message is not same; send one request for each topic")
    return messages[0].topic


def checked(message: pb.Message, now_ms: int) -> pb.MessageType:
    """Return a message's type; FaultError for a message that may not be sent."""
    system = message.system_properties
    if not message.body:
        raise FaultError(pb.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > BODY_BYTES_MAX:
        text = f"message body has {len(message.body)} bytes, {BODY_BYTES_MAX} are allowed"
        raise FaultError(pb.MESSAGE_BODY_TOO_LARGE, text)
    _check_properties(message)
    _check_id(system.message_id)
    if system.HasField("message_group"):
        _check_group(system.message_group)
    if system.body_encoding not in (pb.ENCODING_UNSPECIFIED, pb.IDENTITY, pb.GZIP):
        raise FaultError(pb.BAD_REQUEST, f"body encoding {system.body_encoding} is not supported; use IDENTITY or GZIP")
    found = _type(system)
    if system.HasField("delivery_timestamp"):
        _check_delivery(_ms_of(system.delivery_timestamp, "delivery_timestamp"), now_ms)
    if system.HasField("born_timestamp"):
        _ms_of(system.born_timestamp, "born_timestamp")
    recovery_s = system.orphaned_transaction_recovery_duration.seconds
    if not 0 <= recovery_s <= RECOVERY_MAX_S:
        text = f"orphaned_transaction_recovery_duration is {recovery_s} s, {RECOVERY_MAX_S} s are allowed"
        raise FaultError(pb.BAD_REQUEST, text)
    return found


def check_type(found: pb.MessageType, accepted: Collection[pb.MessageType]) -> None:
    """Raise FaultError when a topic does not take messages of this type; a topic of an unknown type takes all."""
    if found not in accepted and pb.MESSAGE_TYPE_UNSPECIFIED not in accepted:
        wanted = ", ".join(pb.MessageType.Name(one) for one in accepted)
        raise FaultError(
            pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {wanted}, but actual type is "
            f"{pb.MessageType.Name(found)}; set the topic's attribute message.type, or send another type",
        )


def check_invisible(invisible_ms: int, low_ms: int = INVISIBLE_MIN_MS) -> None:
    """Raise FaultError for an invisible time outside of the bounds."""
    if not low_ms <= invisible_ms <= INVISIBLE_MAX_MS:
        text = f"the invisible time is {invisible_ms} ms, expected {low_ms} ms to {INVISIBLE_MAX_MS} ms"
        raise FaultError(pb.ILLEGAL_INVISIBLE_TIME, text)


def _type(system: pb.SystemProperties) -> pb.MessageType:
    if system.HasField("lite_topic"):
        raise FaultError(pb.ILLEGAL_LITE_TOPIC, "lite topics are not supported; send to an ordinary topic")
    if system.message_type not in _SENT_TYPES:
        raise FaultError(pb.BAD_REQUEST, f"message type {system.message_type} is not supported")
    if system.message_type == pb.TRANSACTION:
        if system.HasField("delivery_timestamp"):
            raise FaultError(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a transactional message cannot be delayed")
        return pb.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return pb.DELAY
    return pb.FIFO if system.HasField("message_group") else pb.NORMAL


def _check_properties(message: pb.Message) -> None:
    system = message.system_properties
    if len(message.user_properties) > PROPERTIES_MAX:
        text = f"the message has {len(message.user_properties)} properties, {PROPERTIES_MAX} are allowed"
        raise FaultError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    if len(system.keys) > PROPERTIES_BYTES_MAX:
        text = f"the message has {len(system.keys)} keys; keys and properties may have {PROPERTIES_BYTES_MAX} bytes"
        raise FaultError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    texts = [system.tag, *system.keys]
    for name, value in message.user_properties.items():
        _check_property(name, value)
        texts += (name, value)
    if system.HasField("tag"):
        _check_text(system.tag, "message tag", pb.ILLEGAL_MESSAGE_TAG)
        if "|" in system.tag:
            raise FaultError(pb.ILLEGAL_MESSAGE_TAG, "message tag cannot contain '|'")
    for key in system.keys:
        _check_text(key, "message key", pb.ILLEGAL_MESSAGE_KEY)
    size = sum(len(text.encode()) for text in texts)
    if size > PROPERTIES_BYTES_MAX:
        text = f"properties, tag and keys have {size} bytes, {PROPERTIES_BYTES_MAX} are allowed"
        raise FaultError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _check_property(name: str, value: str) -> None:
    if not name or not value:
        text = f"property {name[:40]!r}: an empty name or value cannot be stored"
        raise FaultError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
    if name in RESERVED_PROPERTIES or name.startswith(TRANSIENT_PREFIX):
        text = f"property {name[:40]!r} is used by the system; choose another name"
        raise FaultError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
    if _has_control(name) or _has_control(value):
        text = f"property {name[:40]!r}: name and value cannot contain control characters"
        raise FaultError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, text)


def _check_id(message_id: str) -> None:
    _check_text(message_id, "message id", pb.ILLEGAL_MESSAGE_ID)
    if len(message_id.encode()) > MESSAGE_ID_BYTES_MAX:
        raise FaultError(pb.ILLEGAL_MESSAGE_ID, f"message id has more than {MESSAGE_ID_BYTES_MAX} bytes")


def _check_group(group: str) -> None:
    _check_text(group, "message group", pb.ILLEGAL_MESSAGE_GROUP)
    if len(group.encode()) >= GROUP_BYTES_MAX:
        text = f"message group has {len(group.encode())} bytes, fewer than {GROUP_BYTES_MAX} are allowed"
        raise FaultError(pb.ILLEGAL_MESSAGE_GROUP, text)


def _ms_of(time: Timestamp, what: str) -> int:
    """Return a time in ms since 1970; FaultError for one outside of the years 1 to 9999."""
    try:
        return time.ToMilliseconds()
    except ValueError as error:
        raise FaultError(pb.BAD_REQUEST, f"{what} is not a time: {error}") from error


def _check_delivery(delivery_ms: int, now_ms: int) -> None:
    if delivery_ms - now_ms > DELAY_MAX_MS:
        text = f"the delivery time is {delivery_ms - now_ms} ms ahead, {DELAY_MAX_MS} ms are allowed"
        raise FaultError(pb.ILLEGAL_DELIVERY_TIME, text)
    if delivery_ms < 0:
        raise FaultError(pb.ILLEGAL_DELIVERY_TIME, f"the delivery time is {delivery_ms} ms, before 1970")


def _check_text(text: str, what: str, code: pb.Code) -> None:
    if not text.strip():
        raise FaultError(code, f"{what} cannot be blank")
    if _has_control(text):
        raise FaultError(code, f"{what} cannot contain control characters")


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(ord(one) < 32 or 127 <= ord(one) < 160 for one in text)
