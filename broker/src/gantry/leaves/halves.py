"""Half messages as bytes: disguising one, what the properties of one say, and the message of one as it is sent again.

What these properties mean and who may write them stands in `gantry.transaction.half`.  The rules of reading are those
of `leaves.properties`; a number is an integer of `leaves.fields`, text that is not UTF-8 reads with replacement
characters, and what is no number counts as not said.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.leaves.fields import integer
from gantry.leaves.properties import NAME_END, PAIR_END, TRAIT_ENDS_OPEN, TRAIT_TRANSACTION, pack, pick, scan
from gantry.leaves.records import view
from gantry.leaves.requests import Send

ROOT = b"TRAN_PREPARED_QUEUE_OFFSET"
CHECKS = b"TRANSACTION_CHECK_TIMES"
SINCE = b"GANTRY_TX_SINCE_MS"
REARMED = b"GANTRY_TX_REARMED"
REAL_TOPIC = b"REAL_TOPIC"
REAL_QUEUE = b"REAL_QID"
TRANSACTION_ID = b"__transactionId__"
GROUP = b"PGROUP"
BATCH = b"SPARK_TXN"
IMMUNITY = (b"CHECK_IMMUNITY_TIME_IN_SECONDS", b"CheckImmunityTimeInSeconds")
OURS = (ROOT, CHECKS, SINCE, REARMED, REAL_TOPIC, REAL_QUEUE, TRANSACTION_ID)

_READ = (ROOT, REAL_TOPIC, REAL_QUEUE, GROUP, b"UNIQ_KEY", CHECKS, SINCE, REARMED, BATCH, *IMMUNITY)
_NOT_KEPT = frozenset(OURS)
_SECONDS_MAX = 1 << 31
_DIGITS_SURE = 19  # fewer always fit 64 bits


class HalfFacts:
    """What a half record's properties say; `immunity_ms` is None where the message has none of its own.

    A root can only lie before the place of the record itself: what says otherwise is its own root.
    """

    __slots__ = (
        "batch",
        "checks",
        "group",
        "immunity_ms",
        "is_rearmed",
        "queue_id",
        "root",
        "since_ms",
        "topic",
        "unique_key",
    )

    def __init__(self, text: bytes, queue_offset: int) -> None:
        root_text, topic, queue, group, key, checks, since, rearmed, batch, *immunity = pick(text, _READ)
        root = _number(root_text, queue_offset)
        self.root = root if 0 <= root < queue_offset else queue_offset
        self.topic = _text(topic)
        self.queue_id = _number(queue, 0)
        self.group = _text(group)
        self.unique_key = _text(key)
        self.checks = max(0, _number(checks, 0))
        self.since_ms = _number(since, 0)
        self.is_rearmed = rearmed is not None
        self.batch = _text(batch)
        self.immunity_ms = _immunity_ms(immunity)


def disguise(send: Send, topic: str) -> None:
    """Readdress a message to queue 0 of `topic`; its own topic, queue and producer group are kept in its properties."""
    text = send.properties
    picked = pick(text, (GROUP, *OURS))
    if any(value is not None for value in picked[1:]):
        # A client that forwards a received message brings all of these along; this is rare.
        text = without(text, _NOT_KEPT)
    elif send.traits & TRAIT_ENDS_OPEN and text:
        text += PAIR_END
    text += b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (send.topic.encode(), send.queue_id)
    if not send.traits & TRAIT_TRANSACTION:
        # 3.2.6 says it in the sys flag; consumers show a transaction id only beside TRAN_MSG.
        text += b"TRAN_MSG\x01true\x02"
    if picked[0] is None:
        text += pack({"PGROUP": send.group})
    if send.unique_key:
        text += b"%b\x01%b\x02" % (TRANSACTION_ID, send.unique_key)
    send.properties = text
    send.traits = send.traits & ~TRAIT_ENDS_OPEN | TRAIT_TRANSACTION
    send.topic, send.queue_id = topic, 0


def disguise_run(sends: Sequence[Send], topic: str, group_bytes_max: int) -> list[int] | None:
    """Disguise all of these messages and return the queues that they were sent to.

    None, and nothing is done, unless each is usual: it has TRAN_MSG, a PGROUP that is not longer than that, none of the
    properties that the broker writes, is no part of a batch, and its topic is no retry or dead-letter topic.
    """
    for send in sends:
        group, *others = pick(send.properties, (GROUP, BATCH, *OURS))
        if (
            group is None
            or len(group) > group_bytes_max
            or any(value is not None for value in others)
            or not send.traits & TRAIT_TRANSACTION
            or send.queue_id < 0
            or send.topic.startswith("%")
        ):
            return None
    queues = [send.queue_id for send in sends]
    for send in sends:
        disguise(send, topic)
    return queues


def message_at(buffer: bytes | bytearray | memoryview, at: int, end: int) -> Send:
    """The message of the record at buffer[at], as it would be appended again: topic, queue and sys flag are its own.

    CorruptRecordError as for `records.view`.
    """
    found = view(buffer, at, end)
    traits, unique_key, keys, tags_code = scan(found.properties)
    return Send(
        topic=found.topic,
        queue_id=found.queue_id,
        sys_flag=found.sys_flag,
        born_ms=found.born_ms,
        flag=found.flag,
        properties=found.properties,
        reconsume_times=found.reconsume_times,
        body=found.body,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
        born_host=found.born_host,
        prepared_offset=found.prepared_offset,
    )


def without(text: bytes, unwanted: frozenset[bytes]) -> bytes:
    """The properties without the pairs of these names, every pair closed."""
    pairs = [pair for pair in text.split(PAIR_END) if pair]
    kept = [pair for pair in pairs if pair.partition(NAME_END)[0] not in unwanted]
    return b"".join([pair + PAIR_END for pair in kept])


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None, default: int) -> int:
    if value is None:
        return default
    if len(value) < _DIGITS_SURE and value.isdigit():
        return int(value)
    number = integer(_text(value))
    return default if number is None else number


def _immunity_ms(values: list[bytes | None]) -> int | None:
    """Return the immunity in ms.  RocketMQ: a value that is no number, or negative, counts as missing."""
    for value in values:
        seconds = _number(value, -1)
        if 0 <= seconds <= _SECONDS_MAX:
            return seconds * 1000
    return None
