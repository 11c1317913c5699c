"""Prepares a message for sending: checks it, gives it an id, compresses it, and packs its properties.

That happens once, before the first attempt.  Retries send the same bytes with the same id, so a receiver can recognise
duplicates.  An invalid message raises ValueError before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from gantry.leaves import properties
from gantry.model.message import RETRY_TOPIC, SHARDING_KEY, UNIQUE_KEY, Message, property_fault
from gantry.model.names import is_retry_topic, topic_fault
from gantry.wire.compression import Compression, compress
from gantry.wire.record import join_batch

BODY_BYTES_MAX = 4 << 20  # RocketMQ's maxMessageSize, which brokers enforce
PROPERTIES_BYTES_MAX = 32_767  # a record has an i16 for their length
JOIN_BYTES_MAX = 16 << 10  # of a body that is sent in a batch with others; a longer one gains nothing by that
_FLAG_END = 1 << 31
_ID_CHARACTERS_MAX = 255
COMPRESS_OVER_BYTES = 4096  # RocketMQ's compressMsgBodyOverHowmuch


class Ids(Protocol):
    """Generates the unique id of each message."""

    def next(self) -> str:
        ...


@dataclass(slots=True)
class Outgoing:
    """The contents of a send request, without its queue; nothing changes it after it was made."""

    topic: str
    body: bytes
    properties: bytes
    message_ids: tuple[str, ...]
    born_ms: int
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    may_join: bool = False  # a broker stores it in a batch with others exactly as it would by itself
    may_make_topic: bool = True  # a broker that lacks the topic makes it, if its settings allow that


@dataclass(frozen=True, slots=True)
class Copy:
    """A message that may have been sent before: its id, and the retry topic of the one group that it is for."""

    message_id: str
    retry_topic: str = ""  # empty: the topic, for all groups

    def next(self) -> str:
        """Return the id; ValueError when no broker could keep it."""
        fault = property_fault("id", self.message_id)
        if fault is not None or len(self.message_id) > _ID_CHARACTERS_MAX:
            raise ValueError(f"message id {self.message_id[:60]!r}: 1 to {_ID_CHARACTERS_MAX} characters are allowed")
        return self.message_id


def prepare(
    message: Message,
    ids: Ids,
    now_ms: int,
    compress_over: int | None = COMPRESS_OVER_BYTES,
    compression: Compression = Compression.ZLIB,
    more: Mapping[str, str] | None = None,
    copy: Copy | None = None,
) -> Outgoing:
    """Return one message ready to send. compress_over: None: never compress. more: properties that the user
    cannot set.
    """
    topic, body, flag, sys_flag = message.topic, bytes(message.body), message.flag, 0
    if copy is not None:
        ids = copy
        if copy.retry_topic:
            topic, more = copy.retry_topic, {**(more or {}), RETRY_TOPIC: topic}
    fault = _fault_of(topic)
    if fault is not None:
        raise ValueError(fault)
    message_id = ids.next()
    pairs = _packed(message, message_id, more)
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a body of {len(body)} bytes, {BODY_BYTES_MAX} are allowed")
    if compress_over is not None and len(body) > compress_over:
        compressed = compress(compression, body)
        if len(compressed) < len(body):
            body, sys_flag = compressed, compression.value
    may_join = (
        len(body) <= JOIN_BYTES_MAX
        and not sys_flag
        and -_FLAG_END <= flag < _FLAG_END
        and not (message.delay_level or message.delay_s or message.deliver_at_ms)
        and _takes_batches(topic)
    )
    return Outgoing(topic, body, pairs, (message_id,), now_ms, flag, sys_flag, False, may_join)


def sharding(key: str) -> dict[str, str] | None:
    """Return the property that marks an ordered (FIFO) message with its key; None for an empty key."""
    return {SHARDING_KEY: key} if key else None


def prepare_batch(
    messages: Sequence[Message], ids: Ids, now_ms: int, more: Mapping[str, str] | None = None
) -> Outgoing:
    """Return a batch of messages of one topic, which are stored all or none; `more` are further properties of each."""
    if not messages:
        raise ValueError("a batch without messages")
    topic = messages[0].topic
    fault = _fault_of(topic)
    if fault is not None:
        raise ValueError(fault)
    if any(message.topic != topic for message in messages):
        raise ValueError("a batch has messages of one topic only")
    if is_retry_topic(topic):
        raise ValueError("a batch cannot go to a retry topic")
    if any(message.is_delayed for message in messages):
        raise ValueError("a batch holds no delayed messages; send them singly")
    message_ids = tuple(ids.next() for _ in messages)
    parts = [
        (message.flag, bytes(message.body), _packed(message, message_id, more))
        for message, message_id in zip(messages, message_ids, strict=True)
    ]
    body = join_batch(parts)
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a batch of {len(body)} bytes, {BODY_BYTES_MAX} are allowed; send it in parts")
    pairs = properties.pack({UNIQUE_KEY: message_ids[0]})
    return Outgoing(topic, body, pairs, message_ids, now_ms, is_batch=True)


@lru_cache(1024)
def _fault_of(topic: str) -> str | None:
    return topic_fault(topic)


@lru_cache(1024)
def _takes_batches(topic: str) -> bool:
    return not is_retry_topic(topic)


def _packed(message: Message, message_id: str, more: Mapping[str, str] | None = None) -> bytes:
    pairs = message.all_properties()
    if more:
        pairs.update(more)
    pairs[UNIQUE_KEY] = message_id
    packed = properties.pack(pairs)
    if len(packed) > PROPERTIES_BYTES_MAX:
        raise ValueError(f"properties of {len(packed)} bytes, {PROPERTIES_BYTES_MAX} are allowed")
    return packed
