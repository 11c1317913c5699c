"""Limits of a topic below those of its broker, set by attributes of the topic:

    message.size.max      bytes of a message's body, as it is sent: a compressed body counts compressed
    property.count.max    properties that the user gave; tags, keys and what else has a name of RocketMQ's do not count
    message.type          NORMAL, FIFO, DELAY or TRANSACTION: only messages of this type, where
                          `topics.check_message_type` is on.  MIXED, UNSPECIFIED and topics without the attribute take
                          all

All are checked message by message, in a batch too, and refused with MESSAGE_ILLEGAL (13) and a remark that names the
topic and the limit.  They bind producers; what a broker makes of a stored message (a retry, a dead letter, a commit, a
delivery) was within them when it came.  Retry, dead-letter and system topics take messages of every type.

A message's type is what RocketMQ's proxy derives from its properties (`TopicMessageType.parseFromMessageProperty`):
TRANSACTION by TRAN_MSG, else DELAY by one of the four properties that ask for a delay, whatever their value, else FIFO
by __SHARDINGKEY, else NORMAL.  A half of a client that sets only the sys flag is a transaction here as well.  Taking
a delayed message back (TIMER_DEL_UNIQKEY) is never refused for its type.

RocketMQ: only its proxy looks at the type.  Java's remoting client never sets __SHARDINGKEY, so its orderly producers
could not send to a FIFO topic at all: the broker does not look either unless it is told to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves import properties, runs
from gantry.model import names
from gantry.model.message import RESERVED_PROPERTIES, SHARDING_KEY, SYS_PREPARED, SYS_TRANSACTION_MASK
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

SIZE_MAX = "message.size.max"
COUNT_MAX = "property.count.max"
MESSAGE_TYPE = "message.type"

_RESERVED = frozenset(name.encode() for name in RESERVED_PROPERTIES)
_KINDS = {"NORMAL": runs.KIND_NORMAL, "FIFO": runs.KIND_FIFO, "DELAY": runs.KIND_DELAY}
_HOW = {
    "NORMAL": "send it without delay, transaction and sharding key",
    "FIFO": f"send it with the property {SHARDING_KEY}",
    "DELAY": "send it with a delay",
    "TRANSACTION": "send it in a transaction",
}


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of one topic; None means no limit."""

    topic: str
    body_bytes_max: int | None = None
    property_count_max: int | None = None
    message_type: str | None = None

    @property
    def kind(self) -> int:
        """Return the kind of `runs.sort` when the limits are nothing but a type that it knows, else 0."""
        if self.body_bytes_max is not None or self.property_count_max is not None:
            return 0
        return _KINDS.get(self.message_type or "", 0)

    def refusal(self, send: Send) -> Refusal | None:
        """Return why this message exceeds the limits; None when it does not."""
        body, packed = send.body, send.properties
        if self.message_type is not None and (found := type_of(send)) not in (self.message_type, _ANY):
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is of type {found}, topic[{self.topic}] takes {self.message_type} ({MESSAGE_TYPE}); "
                f"{_HOW[self.message_type]}, or set the topic's {MESSAGE_TYPE} to MIXED",
            )
        if self.body_bytes_max is not None and len(body) > self.body_bytes_max:
            return _refused(f"the message body has {len(body)} bytes", self.topic, self.body_bytes_max, SIZE_MAX)
        if self.property_count_max is not None and (count := _count(packed)) > self.property_count_max:
            return _refused(f"the message has {count} properties", self.topic, self.property_count_max, COUNT_MAX)
        return None


_ANY = "any"


def type_of(send: Send) -> str:
    """The type of a message: NORMAL, FIFO, DELAY, TRANSACTION, or "any" for a cancel, which is no message."""
    if send.traits & properties.TRAIT_TRANSACTION or send.sys_flag & SYS_TRANSACTION_MASK == SYS_PREPARED:
        return "TRANSACTION"
    if send.traits & properties.TRAIT_TIMER_CANCEL:
        return _ANY
    if send.traits & (properties.TRAIT_DELAY | properties.TRAIT_NAMES_DELAY):
        return "DELAY"
    return "FIFO" if send.traits & properties.TRAIT_SHARDING_KEY else "NORMAL"


def limits_of(topic: str, attributes: Mapping[str, str], checks_type: bool = True) -> TopicLimits | None:
    """Return the limits that these attributes set; None when they set none."""
    if not attributes:
        return None
    size, count = _number(attributes.get(SIZE_MAX)), _number(attributes.get(COUNT_MAX))
    kind = attributes.get(MESSAGE_TYPE)
    if kind not in _HOW or not checks_type or names.is_system_topic(topic) or names.group_of(topic) is not None:
        kind = None
    if size is None and count is None and kind is None:
        return None
    return TopicLimits(topic, size, count, kind)


def _number(text: str | None) -> int | None:
    # The attributes were checked when they were given; a file that was edited by hand limits nothing.
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 20 else None


def _count(packed: bytes) -> int:
    names = set()
    for pair in packed.split(properties.PAIR_END):
        name, _, value = pair.partition(properties.NAME_END)
        if name and value:
            names.add(name)
    return len(names - _RESERVED)


def _refused(what: str, topic: str, limit: int, attribute: str) -> Refusal:
    remark = f"{what}, topic[{topic}] allows {limit} ({attribute})"
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
