"""Entries of a BATCH_ACK_MESSAGE in any form that clients write; the usual form is read by `leaves.leases`.

Source: RocketMQ's `BatchAckMessageRequestBody` and `BatchAck`.
"""

from __future__ import annotations

import base64
import binascii

from gantry.leaves import fields
from gantry.pop import handle, records
from gantry.pop.records import LeaseKey
from gantry.wire.bodies import MalformedBodyError

IN_ORDER = -1
"""Instead of the end of a lease: the messages were popped in order."""

_BITS_BYTES_MAX = 1024  # filtered messages may lie between those of a lease
_NUMBERS = (("so", "startOffset"), ("q", "queueId"), ("pt", "popTime"), ("it", "invisibleTime"))


def entry(source: object) -> tuple[LeaseKey, list[int], int]:
    """Read one lease of a batch: its key, the offsets, and its end in ms or IN_ORDER.

    MalformedBodyError when it is none.
    """
    if not isinstance(source, dict):
        raise MalformedBodyError("an entry of acks is no object")
    group, topic = _text(source, "c", "consumerGroup"), _text(source, "t", "topic")
    flag = fields.integer(_text(source, "r", "retry") or "0")
    numbers = [_number(source, *one) for one in _NUMBERS]
    if not group or not topic or flag not in (handle.NORMAL, handle.RETRY_V1, handle.RETRY_V2):
        raise MalformedBodyError("an entry of acks lacks its group or topic, or its retry flag is not 0, 1 or 2")
    start, queue_id, pop_ms, invisible_ms = numbers
    is_in_order = source.get("rq", source.get("reviveQueueId")) == handle.ORDERLY_QUEUE
    key = LeaseKey(group, handle.real_topic(topic, group, flag), queue_id, start, pop_ms)
    return (
        key,
        list(records.offsets_of_bits(start, _bits(source.get("b", source.get("bitSet"))))),
        IN_ORDER if is_in_order else pop_ms + invisible_ms,
    )


def _text(source: dict[str, object], short: str, long: str) -> str:
    value = source.get(short, source.get(long))
    return value if isinstance(value, str) else ""


def _number(source: dict[str, object], short: str, long: str) -> int:
    value = source.get(short, source.get(long))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise MalformedBodyError(f"{short} of an entry of acks is no number from 0 on")
    return value


def _bits(value: object) -> bytes:
    """Return the bytes of a bit set, which fastjson writes in base64 and others as a list of numbers."""
    try:
        if isinstance(value, str):
            bits = base64.b64decode(value, validate=True)
        elif isinstance(value, list) and all(isinstance(one, int) and -128 <= one < 256 for one in value):
            bits = bytes([one & 255 for one in value])
        else:
            raise MalformedBodyError("b of an entry of acks is neither base64 nor a list of bytes")
    except (binascii.Error, ValueError) as error:
        raise MalformedBodyError("b of an entry of acks is no base64") from error
    if len(bits) > _BITS_BYTES_MAX:
        raise MalformedBodyError(f"b of an entry of acks has {len(bits)} bytes, {_BITS_BYTES_MAX} are allowed")
    # Each message is judged in the same turn: full bit sets in all entries of a request would take it many seconds.
    if (count := int.from_bytes(bits).bit_count()) > records.COUNT_MAX:
        raise MalformedBodyError(f"an entry of acks names {count} messages, a lease has at most {records.COUNT_MAX}")
    return bits
