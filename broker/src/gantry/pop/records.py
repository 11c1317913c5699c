"""Leases and acknowledgements as RocketMQ stores them: delayed messages for the revive topic.

    tag    body (JSON, RocketMQ's short keys)                                        due
    ck     a lease: so start, pt, it, n count, d offsets - start, q, t, c, bn        when it ends: pt + it
    ack    one message is done: ao offset, so, pt, q, t, c, bn                       a second after the lease ends
    bAck   several messages of one lease are done: aol offsets, and as ack           a second after the lease ends

`t` is the topic of the queue, which may be a retry topic, `c` the group, `bn` the broker.  An acknowledgement names its
lease by t, q, so, pt and c.  It is delivered behind its lease, so that the acknowledgements of a lease that was not
handled yet are never before the saved offset of the revive queue.

Ours, and ignored by RocketMQ: `cid` in a lease, the client that renews it, and `pop`, its name of the pop; `gen`, the
generation of the topic where it is not the first; `again` in one that no pop made: it goes on with messages that were
popped before; `move` in one by which the broker moves messages to the log's end (`keeping`), and which it stores in its
revive queue at once; `moved` in an acknowledgement: a newer lease has these messages, so they are not done and the
handle is stale.

`it` may be small or negative in ours: a pop time may lie ahead of a clock that was set back, and pt + it is always the
end of the lease.

Everything read here may be RocketMQ's or damaged: what is no lease and no acknowledgement gives None.

Source: RocketMQ's `PopCheckPoint`, `AckMsg`, `BatchAckMsg` and `PopMessageProcessor`; facts 9.6 of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from gantry.leaves import delays, frames, leases
from gantry.leaves.leases import TAG_ACK, TAG_BATCH_ACK, TAG_LEASE
from gantry.model import names

REVIVE_QUEUES = 8  # RocketMQ's reviveQueueNum
ACK_AFTER_MS = 1000
EARLY_MS = 2000  # RocketMQ delivers a lease a second before it ends; more means that the clock was set back
COUNT_MAX = 32
"""How many messages one lease may have: RocketMQ's bitmap has an i32."""

_RANGES = [list(range(count)) for count in range(COUNT_MAX + 1)]
_I64 = range(-(1 << 63), 1 << 63)
_QUEUES = range(1 << 31)


def revive_topic(cluster: str) -> str:
    """Return the topic to which leases and acknowledgements of a cluster are delivered."""
    return f"{names.REVIVE_TOPIC_PREFIX}{cluster}"


class LeaseKey(NamedTuple):
    """What names a lease."""

    group: str
    topic: str  # the queue's, which may be a retry topic
    queue_id: int
    start: int
    pop_ms: int


class LeaseRecord(NamedTuple):
    """A stored lease; `offsets` ascend, `end_ms` is when it ends by the wall clock."""

    key: LeaseKey
    end_ms: int
    offsets: tuple[int, ...]
    owner: str = ""
    generation: int = 0
    is_again: bool = False  # of messages that were leased before: renewed, or at another time
    is_move: bool = False  # its messages are only copied, and were not delivered to anybody
    pop_name: str = ""  # what the owner calls the pop that made it


Named = tuple[LeaseKey, bool]
"""The lease of a record, and whether the record is the lease itself; else it is an acknowledgement."""


class AckRecord(NamedTuple):
    """A stored acknowledgement of some messages of one lease; is_moved: a newer lease has them."""

    key: LeaseKey
    offsets: tuple[int, ...]
    is_moved: bool = False


class Place(NamedTuple):
    """Where records of leases go: the revive topic and queue, this broker's name and address, the time."""

    topic: str
    queue_id: int
    broker: str
    host: bytes
    now_ms: int


def lease_message(lease: LeaseRecord, place: Place) -> frames.Send:
    """Return the delayed message of a lease; its fields are scanned (`Store.append`)."""
    more = ""
    if lease.owner or lease.generation or lease.is_again or lease.is_move:
        more += f',"cid":{json.dumps(lease.owner)}' if lease.owner else ""
        more += f',"pop":{json.dumps(lease.pop_name)}' if lease.owner and lease.pop_name else ""
        more += f',"gen":{lease.generation}' if lease.generation else ""
        more += ',"again":1' if lease.is_again else ""
        more += ',"move":1' if lease.is_move else ""
    return leases.lease(names.TIMER_TOPIC, lease.key, lease.end_ms, lease.offsets, more, place)


def ended_message(lease: LeaseRecord, place: Place, stored_at: int) -> frames.Send:
    """Return the message of a lease that has ended already, for its revive queue.

    stored_at: a log offset, at or before its own, from which on a deletion of its topic or group concerns it.
    """
    send = lease_message(lease, place)
    send.topic, send.queue_id, send.prepared_offset = place.topic, place.queue_id, stored_at
    return send


def ack_message(ack: AckRecord, lease_end_ms: int, place: Place) -> frames.Send:
    """Return the delayed message of an acknowledgement of a lease that ends at this time; its fields are scanned."""
    due_ms = lease_end_ms + ACK_AFTER_MS
    return leases.ack(names.TIMER_TOPIC, ack.key, ack.offsets, ack.is_moved, due_ms, place)


def named(properties: bytes, body: bytes) -> Named | None:
    """Return whose record of the timer or revive topic this may be; None when it is none.  Cheaper than `read`."""
    tag = delays.last(properties, b"TAGS")
    value = _value(body) if tag in (TAG_LEASE, TAG_ACK, TAG_BATCH_ACK) else None
    key = None if value is None else _key(value)
    return None if key is None else (key, tag == TAG_LEASE)


def read(properties: bytes, body: bytes) -> LeaseRecord | AckRecord | None:
    """Return what a record of the timer or revive topic says; None when it is neither lease nor acknowledgement."""
    tag = delays.last(properties, b"TAGS")
    if tag not in (TAG_LEASE, TAG_ACK, TAG_BATCH_ACK):
        return None
    value = _value(body)
    key = None if value is None else _key(value)
    if value is None or key is None:
        return None
    return _lease(key, value) if tag == TAG_LEASE else _ack(key, value)


def _value(body: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _key(value: dict[str, object]) -> LeaseKey | None:
    group, topic = value.get("c"), value.get("t")
    if not isinstance(group, str) or not isinstance(topic, str) or not group or not topic:
        return None
    numbers = [_number(value.get(name)) for name in ("q", "so", "pt")]
    if None in numbers or numbers[0] not in _QUEUES:
        return None
    queue_id, start, pop_ms = [number or 0 for number in numbers]
    return LeaseKey(group, topic, queue_id, start, pop_ms)


def _lease(key: LeaseKey, value: dict[str, object]) -> LeaseRecord | None:
    invisible_ms, count, acked = _number(value.get("it")), _number(value.get("n")), _number(value.get("bm", 0))
    if invisible_ms is None or acked is None or count is None or not 0 < count <= COUNT_MAX:
        return None
    differences = value.get("d") or list(range(count))  # RocketMQ: without `d` the offsets follow each other
    if not isinstance(differences, list) or len(differences) < count:
        return None
    if not acked and differences == _RANGES[count]:  # true and 1 are equal, and mean the same here
        offsets = tuple(range(key.start, key.start + count))
    else:
        found = [_number(one) for one in differences[:count]]
        if None in found:
            return None
        offsets = tuple(key.start + (one or 0) for number, one in enumerate(found) if not acked >> number & 1)
    if list(offsets) != sorted(set(offsets)) or any(offset not in _I64 or offset < 0 for offset in offsets):
        return None
    if key.pop_ms + invisible_ms not in _I64:
        return None
    owner, pop_name, generation = value.get("cid"), value.get("pop"), _number(value.get("gen", 0))
    return LeaseRecord(
        key,
        key.pop_ms + invisible_ms,
        offsets,
        owner if isinstance(owner, str) else "",
        generation or 0,
        value.get("again") == 1,
        value.get("move") == 1,
        pop_name if isinstance(pop_name, str) else "",
    )


def _ack(key: LeaseKey, value: dict[str, object]) -> AckRecord | None:
    listed = value.get("aol", [value.get("ao")])
    if not isinstance(listed, list):
        return None
    offsets = [offset for one in listed if (offset := _number(one)) is not None]
    is_good = offsets and len(offsets) == len(listed)
    return AckRecord(key, tuple(offsets), value.get("moved") == 1) if is_good else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _I64 else None


def offsets_of_bits(start: int, bits: bytes) -> Sequence[int]:
    """Return the queue offsets whose bits are set, as Java's BitSet has them: bit i of byte i // 8, lowest first."""
    number = int.from_bytes(bits, "little")
    if number & (number + 1) == 0:  # all from the first one on
        return list(range(start, start + number.bit_length()))
    found = []
    while number:
        lowest = number & -number
        found.append(start + lowest.bit_length() - 1)
        number ^= lowest
    return found
