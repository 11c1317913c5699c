"""Half messages: how a message is kept out of sight, and how the real one is made of it again.

A transactional message is stored under RMQ_SYS_TRANS_HALF_TOPIC, queue 0; where it wants to go stands in the
properties REAL_TOPIC and REAL_QID, and everything else of it is left as it came.  Commit makes the real message of
that record: topic and queue restored, transaction bits of the sys flag saying "commit", the field for the prepared
message's log offset filled.

A half that must leave its place in the queue is *put back*: a copy is appended that says the same.  The transaction
stays the same one, so a copy carries its identity, the *root*: the queue offset of the first half, in RocketMQ's own
property TRAN_PREPARED_QUEUE_OFFSET.  It also carries how often its producer was asked, and since when the
transaction counts as old.  Only the broker may say these three: what a client sends under their names is taken out.

Sources: RocketMQ's `TransactionalMessageBridge` and `EndTransactionProcessor`; the cloud product's name for the
immunity time (`CheckImmunityTimeInSeconds`) is understood beside the open-source one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.leaves import fields, frames, properties
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record

ROOT = b"TRAN_PREPARED_QUEUE_OFFSET"
CHECKS = b"TRANSACTION_CHECK_TIMES"
SINCE = b"GANTRY_TX_SINCE_MS"
REARMED = b"GANTRY_TX_REARMED"
REAL_TOPIC = b"REAL_TOPIC"
REAL_QUEUE = b"REAL_QID"

SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SYS_TRANSACTION_BITS = 0xC

OVERHEAD_BYTES = 1024
"""What the broker may add to a half's properties, now and when it is put back: a client's must be shorter by it."""

_TRANSACTION_ID = b"__transactionId__"
_OURS = (ROOT, CHECKS, SINCE, REARMED, REAL_TOPIC, REAL_QUEUE, _TRANSACTION_ID)
_IMMUNITY = (b"CHECK_IMMUNITY_TIME_IN_SECONDS", b"CheckImmunityTimeInSeconds")
_GROUP = b"PGROUP"
_READ = (ROOT, REAL_TOPIC, REAL_QUEUE, _GROUP, b"UNIQ_KEY", CHECKS, SINCE, REARMED, *_IMMUNITY)
_LOOKED_AT = (*_OURS, _GROUP)
_NONE_OF_OURS: list[bytes | None] = [None] * len(_OURS)
_SECONDS_MAX = 1 << 31
_DIGITS_SURE = 19  # fewer always fit 64 bits


class HalfFacts:
    """What a half record's properties say; `immunity_ms` is None where the message has none of its own."""

    __slots__ = ("checks", "group", "immunity_ms", "is_rearmed", "queue_id", "root", "since_ms", "topic", "unique_key")

    def __init__(self, text: bytes, queue_offset: int) -> None:
        # Twice per half and once per end: only what is wanted is decoded.
        root_text, topic, queue, group, key, checks, since, rearmed, *immunity = properties.pick(text, _READ)
        root = _number(root_text, queue_offset)
        self.root = root if 0 <= root < queue_offset else queue_offset
        self.topic = _text(topic)
        self.queue_id = _number(queue, 0)
        self.group = _text(group)
        self.unique_key = _text(key)
        self.checks = max(0, _number(checks, 0))
        self.since_ms = _number(since, 0)
        self.is_rearmed = rearmed is not None
        self.immunity_ms = _immunity_ms(immunity)


def is_half(send: Send) -> bool:
    """Whether the message asks to be a half.

    RocketMQ: a redelivery that carries TRAN_MSG along from the message it repeats is none.
    """
    if send.traits & properties.TRAIT_TRANSACTION:
        return not (send.reconsume_times > 0 and send.traits & properties.TRAIT_DELAY)
    return send.sys_flag & SYS_TRANSACTION_BITS == SYS_PREPARED


def disguise(send: Send) -> None:
    """Make a half of an admitted message; its queue is chosen, and no longer stands in `queue_id`."""
    text = send.properties
    *ours, group = properties.pick(text, _LOOKED_AT)
    if ours != _NONE_OF_OURS:
        # A client that sends on what it received brings all of these along; nearly nobody does.
        text = _without(text, frozenset(_OURS))
    elif send.traits & properties.TRAIT_ENDS_OPEN and text:
        text += properties.PAIR_END
    text += b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (send.topic.encode(), send.queue_id)
    if not send.traits & properties.TRAIT_TRANSACTION:
        # 3.2.6 says it in the sys flag; consumers show a transaction id only beside TRAN_MSG.
        text += b"TRAN_MSG\x01true\x02"
    if group is None:
        text += properties.pack({"PGROUP": send.group})
    if send.unique_key:
        text += b"%b\x01%b\x02" % (_TRANSACTION_ID, send.unique_key)
    send.properties = text
    send.traits = send.traits & ~properties.TRAIT_ENDS_OPEN | properties.TRAIT_TRANSACTION
    send.sys_flag &= ~SYS_TRANSACTION_BITS
    send.topic, send.queue_id = names.HALF_TOPIC, 0


def real_message(record: Record, facts: HalfFacts, queue_id: int) -> Send:
    """The message that a commit appends.

    RocketMQ: the stored properties keep what disguised them, TRAN_MSG among it, by which clients know that the
    message has a transaction id.
    """
    return _copy(
        record,
        record.properties,
        facts.topic,
        queue_id,
        record.sys_flag & ~SYS_TRANSACTION_BITS | SYS_COMMIT,
        record.log_offset,
    )


def put_back(record: Record, root: int, checks: int, since_ms: int, is_rearmed: bool = False) -> Send:
    """The copy that takes a half's place, or arms again one that was given up."""
    text = with_state(record.properties, root, checks, since_ms)
    if is_rearmed:
        text = properties.add(text, REARMED, b"1")
    return _copy(record, text, names.HALF_TOPIC, 0, record.sys_flag & ~SYS_TRANSACTION_BITS, 0)


def given_up(record: Record, root: int, checks: int, since_ms: int) -> Send:
    """The copy that stands for a half that nobody answered for; it can be listed and armed again."""
    text = with_state(record.properties, root, checks, since_ms)
    flag = record.sys_flag & ~SYS_TRANSACTION_BITS
    return _copy(record, text, names.CHECK_MAX_TIME_TOPIC, 0, flag, record.log_offset)


def question(record: Record, facts: HalfFacts, checks: int) -> Send:
    """The message as its producer is shown it: under its own topic and queue, with the number of this check."""
    text = properties.add(_without(record.properties, frozenset({CHECKS})), CHECKS, b"%d" % checks)
    return _copy(record, text, facts.topic, facts.queue_id, record.sys_flag, record.prepared_offset)


def with_state(text: bytes, root: int, checks: int, since_ms: int) -> bytes:
    """A half's properties with identity, number of checks and age in them."""
    text = _without(text, frozenset({ROOT, CHECKS, SINCE, REARMED}))
    return text + b"%b\x01%d\x02%b\x01%d\x02%b\x01%d\x02" % (ROOT, root, CHECKS, checks, SINCE, since_ms)


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


def _without(text: bytes, unwanted: frozenset[bytes]) -> bytes:
    pairs = [pair for pair in text.split(properties.PAIR_END) if pair]
    kept = [pair for pair in pairs if pair.partition(properties.NAME_END)[0] not in unwanted]
    return b"".join([pair + properties.PAIR_END for pair in kept])


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None, default: int) -> int:
    if value is None:
        return default
    if len(value) < _DIGITS_SURE and value.isdigit():
        return int(value)
    number = fields.integer(_text(value))
    return default if number is None else number


def _immunity_ms(values: list[bytes | None]) -> int | None:
    """RocketMQ: a value that is no number, or negative, is as good as none."""
    for value in values:
        seconds = _number(value, -1)
        if 0 <= seconds <= _SECONDS_MAX:
            return seconds * 1000
    return None
