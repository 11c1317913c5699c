"""Messages of the gRPC protocol to messages as brokers store them, and back (facts: protocol, 10.6, 10.7).  Pure.

The producer group of a stored message is the name of its topic: clients of this protocol have no other.

A message is delivered with its body decompressed.  One whose body this process cannot decompress is delivered as it is
stored; when its flags call it compressed, the client is told GZIP.  The MD5 digest is upper-case hexadecimal: some
clients compare it as text, and take a message with another digest for damaged.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gantry.client.outgoing import PROPERTIES_BYTES_MAX, Outgoing
from gantry.client.requests import transaction_requests
from gantry.leaves import properties
from gantry.model.message import (
    DELAY,
    KEYS,
    RESERVED_PROPERTIES,
    SHARDING_KEY,
    SYS_COMPRESSED,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TRANSIENT_PREFIX,
    UNIQUE_KEY,
    StoredMessage,
)
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError
from gantry.wire.record import join_batch

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

BORN_HOST, BORN_MS = "__BORNHOST", "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
DEAD_TOPIC, DEAD_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
_INT32_MAX = (1 << 31) - 1
_TIME_MS_MAX = 253_402_300_799_999  # of protobuf's Timestamp: the end of the year 9999
_DELAYS = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, "TIMER_DELAY_SEC")


def outgoing(message: pb.Message, kind: pb.MessageType, born_host: str, now_ms: int) -> Outgoing:
    """Return a checked message ready to send; FaultError when its properties are too long for a record."""
    system, topic = message.system_properties, message.topic.name
    born_ms = system.born_timestamp.ToMilliseconds() if system.HasField("born_timestamp") else now_ms
    packed = _packed(message, kind, born_host, born_ms)
    sys_flag = SYS_COMPRESSED if system.body_encoding == pb.GZIP else 0
    found = Outgoing(topic, message.body, packed, (system.message_id,), born_ms, 0, sys_flag)
    if kind != pb.TRANSACTION:
        return found
    recovery_s = system.orphaned_transaction_recovery_duration.seconds
    try:
        return transaction_requests.as_half(found, topic, recovery_s or None)
    except ValueError as error:
        raise FaultError(pb.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error


def batch(messages: list[Outgoing]) -> Outgoing:
    """Return several messages of one topic as one request, which the broker stores all or none."""
    first = messages[0]
    body = join_batch([(one.flag, one.body, one.properties) for one in messages])
    ids = tuple(one.message_ids[0] for one in messages)
    pairs = properties.pack({UNIQUE_KEY: ids[0]})
    return Outgoing(first.topic, body, pairs, ids, first.born_ms, is_batch=True)


def delivered(stored: StoredMessage, topic: pb.Resource, handle: str | None = None) -> pb.Message:
    """Return a stored message as a client gets it; `handle` is its receipt handle, if it is leased."""
    pairs = stored.properties
    is_packed = bool(stored.decode_error) and bool(stored.sys_flag & SYS_COMPRESSED)
    found = pb.Message(topic=topic, body=stored.body)
    for name, value in pairs.items():
        if name not in RESERVED_PROPERTIES and not name.startswith(TRANSIENT_PREFIX):
            found.user_properties[name] = value
    system = found.system_properties
    if stored.tags:
        system.tag = stored.tags
    system.keys.extend(stored.keys)
    system.message_id = stored.message_id
    digest = hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper()
    system.body_digest.CopyFrom(pb.Digest(type=pb.MD5, checksum=digest))
    system.body_encoding = pb.GZIP if is_packed else pb.IDENTITY
    system.message_type = type_of(stored)
    _set_ms(system.born_timestamp, stored.born_ms)
    system.born_host = pairs.get(BORN_HOST) or stored.born_host
    _set_ms(system.store_timestamp, stored.store_ms)
    system.store_host = stored.store_host
    deliver_ms = pairs.get(TIMER_DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdecimal() and len(deliver_ms) < 14:
        system.delivery_timestamp.FromMilliseconds(int(deliver_ms))
    if pairs.get(SHARDING_KEY):
        system.message_group = pairs[SHARDING_KEY]
    if handle is not None:
        system.receipt_handle = handle
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = min(_INT32_MAX, stored.reconsume_times + 1)
    if pairs.get(TRACE_CONTEXT):
        system.trace_context = pairs[TRACE_CONTEXT]
    if pairs.get(DEAD_TOPIC) and pairs.get(DEAD_ID):
        system.dead_letter_queue.CopyFrom(pb.DeadLetterQueue(topic=pairs[DEAD_TOPIC], message_id=pairs[DEAD_ID]))
    return found


def type_of(stored: StoredMessage) -> pb.MessageType:
    """Return a stored message's type, from its properties."""
    pairs = stored.properties
    if pairs.get(transaction_requests.TRANSACTION) == "true":
        return pb.TRANSACTION
    if any(name in pairs for name in _DELAYS):
        return pb.DELAY
    return pb.FIFO if pairs.get(SHARDING_KEY) else pb.NORMAL


def _packed(message: pb.Message, kind: pb.MessageType, born_host: str, born_ms: int) -> bytes:
    system = message.system_properties
    pairs = dict(message.user_properties)
    pairs[UNIQUE_KEY] = system.message_id
    if system.HasField("tag"):
        pairs[TAGS] = system.tag
    if system.keys:
        pairs[KEYS] = " ".join(system.keys)
    if kind == pb.DELAY:
        pairs[TIMER_DELIVER_MS] = str(system.delivery_timestamp.ToMilliseconds())
    if system.HasField("message_group"):
        pairs[SHARDING_KEY] = system.message_group
    if system.trace_context:
        pairs[TRACE_CONTEXT] = _plain(system.trace_context)
    pairs[BORN_HOST] = _plain(system.born_host) or born_host or "-"
    pairs[BORN_MS] = str(born_ms)
    packed = properties.pack(pairs)
    if len(packed) > PROPERTIES_BYTES_MAX:
        text = f"properties of {len(packed)} bytes, {PROPERTIES_BYTES_MAX} are allowed"
        raise FaultError(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    return packed


def _set_ms(field: Timestamp, value_ms: int) -> None:
    """Set a time; the nearest one that the type can hold, because a remoting producer may name any 64-bit number."""
    field.FromMilliseconds(min(max(value_ms, 0), _TIME_MS_MAX))


def _plain(text: str) -> str:
    """Return a text without the two characters that separate stored properties."""
    return text.replace("\x01", " ").replace("\x02", " ")
