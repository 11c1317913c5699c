"""Messages as users of the client see them: the one they send and the one they receive.

Tags and keys are properties of a message like any other (`TAGS`, `KEYS`), only better known.  A `Message` keeps them
apart from the user's own properties, whose names must not be RocketMQ's reserved ones: a name in both would silently
mean something.  The names are RocketMQ's `MessageConst`.

A stored message has two ids: `offset_message_id` names the broker's address and the log offset; `message_id` is the
unique id that the producer gave it, the same for every copy, and the one to tell a duplicate by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQUE_KEY = "UNIQ_KEY"
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
SHARDING_KEY = "__SHARDINGKEY"
MSG_TYPE = "MSG_TYPE"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
REPLY_TTL_MS = "TTL"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
AGE_MS = "GANTRY_TX_AGE_MS"  # of a half, set by the client that is asked about it; never sent or stored

_RESERVED = (
    "KEYS TAGS WAIT DELAY UNIQ_KEY CLUSTER MSG_REGION TRACE_ON BUYER_ID INSTANCE_ID __SHARDINGKEY EXTEND_UNIQ_INFO "
    "MSG_TYPE BORN_TIMESTAMP __BORNHOST __CRC32# DUP_INFO TRACE_CONTEXT RETRY_TOPIC ORIGIN_MESSAGE_ID RECONSUME_TIME "
    "MAX_RECONSUME_TIMES CONSUME_START_TIME DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID REAL_TOPIC REAL_QID TRAN_MSG PGROUP "
    "__transactionId__ CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES MIN_OFFSET "
    "MAX_OFFSET CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME TIMER_DELAY_SEC TIMER_DELAY_MS "
    "TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY "
    "TIMER_DELAY_LEVEL POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_NUM INNER_BASE INNER_MULTI_DISPATCH "
    "INNER_MULTI_QUEUE_OFFSET PROPERTY_FORWARD_QUEUE_ID REDIRECT TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG"
)
RESERVED_PROPERTIES = frozenset(_RESERVED.split())
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

SYS_COMPRESSED = 0x1
SYS_MULTI_TAGS = 0x2
SYS_TRANSACTION_MASK = 0xC
SYS_PREPARED, SYS_COMMIT, SYS_ROLLBACK = 0x4, 0x8, 0xC
SYS_COMPRESSION_MASK = 0x700
SYS_LZ4, SYS_ZSTD, SYS_ZLIB = 0x100, 0x200, 0x300


def property_fault(name: str, value: str) -> str | None:
    """Why a user may not set this property, or None when it is allowed."""
    if not name or not value:
        return f"property {name[:40]!r}: an empty name or value cannot be stored"
    if name in RESERVED_PROPERTIES or name.startswith(TRANSIENT_PREFIX):
        return f"property {name[:40]!r}: the name has a meaning of its own in RocketMQ; choose another"
    if any(separator in text for text in (name, value) for separator in "\x01\x02"):
        return f"property {name[:40]!r}: a name or value may hold neither 0x01 nor 0x02"
    return None


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.  `keys` are looked up by QUERY_MESSAGE; `flag` is the application's own number.

    Keys in one text are parted by blanks, as they are in the property.

    A message may be delivered later; at most one of these says when: `delay_s` seconds after it was stored,
    `deliver_at_ms` by the wall clock (milliseconds since the epoch), or `delay_level`, 1 to 18 of the broker's ladder
    (1 s, 5 s, 10 s, 30 s, 1 min, ... 2 h), the only one that RocketMQ 4 knows.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    delay_s: float = 0.0
    deliver_at_ms: int = 0

    @property
    def is_delayed(self) -> bool:
        """Whether it is to be delivered later."""
        return bool(self.delay_level or self.delay_s or self.deliver_at_ms)

    def all_properties(self) -> dict[str, str]:
        """The user's properties with tags and keys among them; ValueError for one that is not allowed."""
        pairs = {}
        for name, value in self.properties.items():
            fault = property_fault(name, value)
            if fault is not None:
                raise ValueError(fault)
            pairs[name] = value
        if self.tags:
            pairs[TAGS] = self.tags
        if self.keys:
            keys = self.keys.split() if isinstance(self.keys, str) else self.keys
            text = " ".join(keys if type(keys) is list else _checked_keys(keys))
            if "\x01" in text or "\x02" in text:
                text = " ".join(_checked_keys(keys))  # raises
            if text:
                pairs[KEYS] = text
        if self.delay_level or self.delay_s or self.deliver_at_ms:
            pairs |= self._delay()
        return pairs

    def _delay(self) -> dict[str, str]:
        given = (self.delay_level, self.delay_s, self.deliver_at_ms)
        if min(given) < 0 or sum(1 for one in given if one) > 1:
            raise ValueError(
                f"delay_level {self.delay_level}, delay_s {self.delay_s:g}, deliver_at_ms {self.deliver_at_ms}: "
                "expected at most one of them, and none below 0"
            )
        if self.delay_level:
            return {DELAY: str(self.delay_level)}
        if self.deliver_at_ms:
            return {TIMER_DELIVER_MS: str(self.deliver_at_ms)}
        return {TIMER_DELAY_MS: str(max(1, round(self.delay_s * 1000)))}


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a broker stored it: what was sent, where it stands and who was involved.

    The body is decompressed, unless `decode_error` says why that was not possible.

    `properties` holds all of them, the reserved ones too; hosts are "address:port".
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    offset_message_id: str
    broker_name: str = ""
    decode_error: str = ""  # why the body is not what was sent but the bytes that are stored; empty when it was decoded

    @property
    def is_unreadable(self) -> bool:
        """Whether its record is so damaged that only size and places are known; the body is all of it."""
        return bool(self.decode_error) and not self.offset_message_id

    @property
    def age_ms(self) -> int | None:
        """Of a half whose outcome is asked for: how long its broker has had it; None where that does not say so."""
        text = self.properties.get(AGE_MS, "")
        return int(text) if text.isdecimal() else None

    @property
    def message_id(self) -> str:
        """The producer's unique id; the offset id for a message that came without."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def tags(self) -> str:
        """The tag expression of the message, empty without."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the message can be found by."""
        return tuple(self.properties.get(KEYS, "").split())


def _checked_keys(keys: Iterable[str]) -> Iterable[str]:
    for key in keys:
        if not key or any(separator in key for separator in " \x01\x02"):
            raise ValueError(f"key {key[:40]!r}: a key is not empty and has no blank, 0x01 or 0x02")
        yield key
