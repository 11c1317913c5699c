"""Copies of records that consumers send back, a run at a time.

What becomes of a copy stands in `append.redelivery`.  Here it gets what every copy has: the properties without those
of earlier rounds, and behind them where the message came from.  A record that needs a closer look has no copy: one
that cannot be read, one with a topic beyond ASCII, one whose origin is.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from gantry.errors import CorruptRecordError
from gantry.leaves import properties
from gantry.leaves.delays import without
from gantry.leaves.records import RECORD_BYTES_MIN, SYS_TRANSACTION_BITS, Record, offset_message_id, view
from gantry.leaves.requests import Send

RETRY_TOPIC = b"RETRY_TOPIC"
ORIGIN_ID = b"ORIGIN_MESSAGE_ID"
# Written by an earlier round, or by the client for this one.  Timers too: beside a level they count for nothing.
SPENT = frozenset(
    b"DELAY REAL_TOPIC REAL_QID WAIT RECONSUME_TIME MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET "
    b"TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES "
    b"TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __STARTDELIVERTIME".split()
)
ORIGINS = frozenset({RETRY_TOPIC, ORIGIN_ID})
# Longer than any name or id: both are repeated in the copy, which has to fit a record.
ORIGIN_TOPIC_BYTES_MAX = 255
ORIGIN_ID_BYTES_MAX = 255

_REWRITTEN = SPENT | ORIGINS
_HEAD = Struct(">i24xq")  # the size and the log offset in a record's head (see `leaves.records`)


def copies(
    memory: bytes | bytearray | memoryview,
    base: int,
    end: int,
    offsets: Sequence[int],
    retry_topic: str,
    bytes_max: int,
) -> list[tuple[Send, str] | None]:
    """Copies of the records at these log offsets, with the topic under which each was consumed first.

    memory[0] is log offset `base`; records end at or before `end`.  A copy has the topic, the queue, both offsets, the
    size and the redelivery count of its record.  Origins that a record names count only in `retry_topic`.  None for a
    record that needs a closer look.  Ends before the record with which there would be more than `bytes_max`, but for
    the first.
    """
    made: list[tuple[Send, str] | None] = []
    total = 0
    end = min(end - base, len(memory))
    for log_offset in offsets:
        at = log_offset - base
        found = None
        if 0 <= at <= end - RECORD_BYTES_MIN:
            size, said = _HEAD.unpack_from(memory, at)
            if said == log_offset and RECORD_BYTES_MIN <= size <= end - at:
                total += size
                if made and total > bytes_max:
                    break
                found = _record(memory, at, at + size)
        made.append(None if found is None else _copy(found, retry_topic))
    return made


def _record(memory: bytes | bytearray | memoryview, at: int, end: int) -> Record | None:
    try:
        found = view(memory, at, end)
    except CorruptRecordError:
        return None
    return found if found.topic.isascii() else None


def _copy(record: Record, retry_topic: str) -> tuple[Send, str] | None:
    topic, message_id = record.topic.encode(), offset_message_id(record.store_host, record.log_offset).encode()
    if record.topic == retry_topic:
        said_topic, said_id = properties.pick(record.properties, (RETRY_TOPIC, ORIGIN_ID))
        topic = said_topic if said_topic is not None and len(said_topic) <= ORIGIN_TOPIC_BYTES_MAX else topic
        message_id = said_id if said_id is not None and len(said_id) <= ORIGIN_ID_BYTES_MAX else message_id
        if not topic.isascii() or not message_id.isascii():
            return None
    text = without(record.properties, _REWRITTEN)
    text += b"%b\x01%b\x02%b\x01%b\x02" % (RETRY_TOPIC, topic, ORIGIN_ID, message_id)
    traits, unique_key, keys, tags_code = properties.scan(text)
    send = Send(
        topic=record.topic,
        queue_id=record.queue_id,
        sys_flag=record.sys_flag & ~SYS_TRANSACTION_BITS,
        born_ms=record.born_ms,
        flag=record.flag,
        properties=text,
        reconsume_times=record.reconsume_times,
        body=record.body,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
        born_host=record.born_host,
    )
    send.queue_offset, send.log_offset, send.size = record.queue_offset, record.log_offset, record.size
    return send, topic.decode()
