"""What a topic allows less of than its broker does, by attributes that its administrator gave it:

    message.size.max      bytes of a message's body, as it is sent: a compressed body counts compressed
    property.count.max    properties that the user gave; tags, keys and what else has a name of RocketMQ's do not count

Both are checked message by message, in a batch too, and refused with MESSAGE_ILLEGAL (13) and a remark that names the
topic and the limit.  They bind producers; what a broker makes of a stored message (a retry, a dead letter, a delivery)
was within them when it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gantry.errors import Refusal
from gantry.leaves import properties
from gantry.model.message import RESERVED_PROPERTIES
from gantry.wire.codes import ResponseCode

SIZE_MAX = "message.size.max"
COUNT_MAX = "property.count.max"

_RESERVED = frozenset(name.encode() for name in RESERVED_PROPERTIES)


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Of one topic; None is no limit."""

    topic: str
    body_bytes_max: int | None = None
    property_count_max: int | None = None

    def refusal(self, body: bytes, packed: bytes) -> Refusal | None:
        """Whether a message with this body and these packed properties is within the limits."""
        if self.body_bytes_max is not None and len(body) > self.body_bytes_max:
            return _refused(f"the message body has {len(body)} bytes", self.topic, self.body_bytes_max, SIZE_MAX)
        if self.property_count_max is not None and (count := _count(packed)) > self.property_count_max:
            return _refused(f"the message has {count} properties", self.topic, self.property_count_max, COUNT_MAX)
        return None


def limits_of(topic: str, attributes: Mapping[str, str]) -> TopicLimits | None:
    """What the attributes say; None when they limit nothing."""
    size, count = attributes.get(SIZE_MAX), attributes.get(COUNT_MAX)
    if size is None and count is None:
        return None
    return TopicLimits(topic, _number(size), _number(count))


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
