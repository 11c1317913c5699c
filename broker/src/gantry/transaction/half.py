"""Half messages: hiding a message until its transaction ends, and making the real one of it again.

A transactional message is stored under RMQ_SYS_TRANS_HALF_TOPIC, queue 0; its own topic and queue are kept in the
properties REAL_TOPIC and REAL_QID, and everything else of it is unchanged.  Commit makes the real message of
that record: topic and queue restored, transaction bits of the sys flag saying "commit", the field for the prepared
message's log offset filled.

A half that must leave its place in the queue is *put back*: a copy is appended.  The transaction stays the same one,
so a copy carries its identity, the *root*: the queue offset of the first half, in RocketMQ's own
property TRAN_PREPARED_QUEUE_OFFSET.  It also carries how often its producer was checked, and from when the age of the
transaction counts.  Only the broker may set these three: a client's properties of these names are removed.

Sources: RocketMQ's `TransactionalMessageBridge` and `EndTransactionProcessor`; the cloud product's name for the
immunity time (`CheckImmunityTimeInSeconds`) is understood beside the open-source one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.leaves import frames, halves, openhalves, properties
from gantry.leaves.records import PROPERTIES_BYTES_MAX, SYS_TRANSACTION_BITS
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record
    from gantry.model.topic import TopicConfig

SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC

HalfFacts = halves.HalfFacts
make_real = openhalves.make_real
_NUMBER_MAX = (1 << 63) - 1
_QUEUES_MAX = 1 << 31
_CHECKED = frozenset({halves.CHECKS})
_STATE = frozenset({halves.ROOT, halves.CHECKS, halves.SINCE, halves.REARMED})


def is_half(send: Send) -> bool:
    """Whether the message asks to be a half.

    RocketMQ: a redelivery that carries TRAN_MSG along from the message it repeats is none.
    """
    if send.traits & properties.TRAIT_TRANSACTION:
        return not (send.reconsume_times > 0 and send.traits & properties.TRAIT_DELAY)
    return send.sys_flag & SYS_TRANSACTION_BITS == SYS_PREPARED


def disguise(send: Send) -> None:
    """Make a half of an admitted message; its chosen queue is then in REAL_QID, not in `queue_id`."""
    halves.disguise(send, names.HALF_TOPIC)


def queue_of(topic: TopicConfig, queue_id: int) -> int:
    """Return the queue that the message was sent to, or another one when the topic has fewer queues now."""
    return queue_id if 0 <= queue_id < topic.queue_count else queue_id % max(topic.write_queues, 1)


def put_back(record: Record, root: int, checks: int, since_ms: int, is_rearmed: bool = False) -> Send:
    """Make the copy that replaces a half in the queue, or that arms again one that was given up."""
    text = with_state(record.properties, root, checks, since_ms)
    if is_rearmed:
        text = properties.add(text, halves.REARMED, b"1")
    return _copy(record, text, names.HALF_TOPIC, 0, record.sys_flag & ~SYS_TRANSACTION_BITS, 0)


def given_up(record: Record, root: int, checks: int, since_ms: int) -> Send:
    """Make the copy of a half that is given up, because no producer answered; it can be listed and armed again."""
    text = with_state(record.properties, root, checks, since_ms)
    flag = record.sys_flag & ~SYS_TRANSACTION_BITS
    return _copy(record, text, names.CHECK_MAX_TIME_TOPIC, 0, flag, record.log_offset)


def question(record: Record, facts: HalfFacts, checks: int) -> Send:
    """Make the message that a check sends to its producer, with its own topic and queue and the check's number."""
    text = properties.add(halves.without(record.properties, _CHECKED), halves.CHECKS, b"%d" % checks)
    if len(text) > PROPERTIES_BYTES_MAX:
        text = record.properties  # of an older version or another broker: checked without the number
    queue_id = facts.queue_id if 0 <= facts.queue_id < _QUEUES_MAX else 0
    return _copy(record, text, facts.topic, queue_id, record.sys_flag, record.prepared_offset)


def has_room(text: bytes) -> bool:
    """Return whether a half can be put back, given up and armed again: whether the added properties fit a record.

    Admitted halves can; a half of an older version or of another broker may be longer.
    """
    longest = with_state(text, _NUMBER_MAX, _NUMBER_MAX, _NUMBER_MAX) + halves.REARMED + b"\x011\x02"
    return len(longest) <= PROPERTIES_BYTES_MAX


def with_state(text: bytes, root: int, checks: int, since_ms: int) -> bytes:
    """Return a half's properties with its root, number of checks and time from which its age counts."""
    text = halves.without(text, _STATE)
    said = (halves.ROOT, root, halves.CHECKS, checks, halves.SINCE, since_ms)
    return text + b"%b\x01%d\x02%b\x01%d\x02%b\x01%d\x02" % said


def _copy(record: Record, text: bytes, topic: str, queue_id: int, sys_flag: int, prepared_offset: int) -> Send:
    traits, unique_key, keys, tags_code = properties.scan(text)
    return frames.Send(
        topic=topic,
        queue_id=queue_id,
        sys_flag=sys_flag,
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
        prepared_offset=prepared_offset,
    )

