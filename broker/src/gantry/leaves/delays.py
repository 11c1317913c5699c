"""Delayed messages as bytes, a run at a time: hiding them, when they are due, how they are recalled and delivered.

    hide          as many from the first on as need no closer look by `schedule.intake`
    handles       the recall handles that their replies name
    codes         what stands in their queue entries in place of the tag hash
    entries_at    queue entries at single offsets
    ready         how many entries from the first on can be delivered without a closer look by `schedule.service`
    deliveries    the messages that consumers get

What the properties mean stands in `schedule.disguise`, what the codes mean in `store.duetimes`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from struct import Struct

from gantry.errors import CorruptRecordError
from gantry.leaves import fields, properties
from gantry.leaves.halves import message_at
from gantry.leaves.properties import PAIR_END, TRAIT_ENDS_OPEN, TRAIT_TIMER_CANCEL, pick
from gantry.leaves.queues import ENTRY_BYTES, NO_QUEUE_BIT, PRE_BLANK_SIZE
from gantry.leaves.records import RECORD_BYTES_MIN
from gantry.leaves.requests import Send
from gantry.leaves.stored import Entry

REAL_TOPIC = b"REAL_TOPIC"
REAL_QUEUE = b"REAL_QID"
OUT_MS = b"TIMER_OUT_MS"
ROLLED = b"TIMER_ROLL_TIMES"
CARRIED = b"GANTRY_CARRIED"  # ours: the log offset of the record that this copy stands for
RETIMED = b"GANTRY_RETIMED"
"""Ours: the place of the timer topic that this record replaces, see `schedule.retimes`."""
CANCELS = b"TIMER_DEL_UNIQKEY"
LEVEL = b"DELAY"
TIMES = (b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"__STARTDELIVERTIME")
OURS = frozenset({REAL_TOPIC, REAL_QUEUE, OUT_MS, ROLLED, CARRIED, RETIMED, b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"})
BY_LEVEL = OURS | frozenset({LEVEL, *TIMES})

CANCEL_BIT = 1 << 62
LEASE_BIT = 1 << 61
"""Set in the code of a message for a revive topic: a lease of popped messages, or an acknowledgement."""
RETIME_BIT = 1 << 60
"""Set in the code of a message that replaces another one of the timer topic."""
HASH_MAX = 1 << 32
"""From here on a code of the timer topic is a time; below it is a tag hash."""

_DIGITS_MAX = 15  # a thousand times such a number fits 64 bits
_QUEUE_DIGITS_MAX = 9
_LEVEL_DIGITS_MAX = 18  # more mean a level above the last one
_ASKED = (LEVEL, *TIMES)
_RETRY_PREFIX = b"%RETRY%"
_REVIVE_PREFIX = b"rmq_sys_REVIVE_LOG_"
_ENTRY = Struct(">qiq")
_HEAD = Struct(">i24xq")  # the size and the log offset in a record's head (see `leaves.records`)

Place = tuple[int, int, int]
"""Log offset, size and code of a queue entry."""


def hide(
    sends: Iterable[Send],
    now_ms: int,
    level_max: int,
    ahead_ms_max: int,
    timed_max: int,
    topics: tuple[str, str],
) -> int:
    """Readdress messages that ask for a delay to the topic for levels or that for times; how many from the first on.

    Ends before the first one that needs a closer look: a cancel, a number that is none, no delay, a time that has
    passed or is more than `ahead_ms_max` away, or one message with a time more than `timed_max`.  Higher levels count
    as `level_max`.
    """
    timed = hidden = 0
    for send in sends:
        level_text, *times = pick(send.properties, _ASKED)
        level = _number(level_text)
        if level < 0 or send.queue_id < 0 or send.traits & TRAIT_TIMER_CANCEL:
            break
        if level:
            level = min(level, level_max)
            text = without(send.properties, BY_LEVEL) + b"DELAY\x01%d\x02" % level
            topic, queue_id = topics[0], level - 1
        else:
            at_ms = _time(times, now_ms)
            if not now_ms < at_ms <= now_ms + ahead_ms_max or timed >= timed_max:
                break
            timed += 1
            text = without(send.properties, OURS) + b"%b\x01%d\x02" % (OUT_MS, at_ms)
            topic, queue_id = topics[1], 0
        send.properties = text + b"%b\x01%b\x02%b\x01%d\x02" % (
            REAL_TOPIC,
            send.topic.encode(),
            REAL_QUEUE,
            send.queue_id,
        )
        send.traits &= ~TRAIT_ENDS_OPEN
        send.topic, send.queue_id = topic, queue_id
        hidden += 1
    return hidden


def _number(value: bytes | None) -> int:
    """Return the number; 0 for None, -1 for a text that is no plain number."""
    if value is None:
        return 0
    return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else -1


def _time(times: Sequence[bytes | None], now_ms: int) -> int:
    """Return the time that the first of these values asks for; -1 when none does."""
    for value, base_ms, unit in zip(times, (now_ms, now_ms, 0, 0), (1000, 1, 1, 1), strict=True):
        if value is not None:
            number = _number(value)
            return -1 if number < 0 else base_ms + number * unit
    return -1


def without(text: bytes, unwanted: frozenset[bytes]) -> bytes:
    """The properties without the pairs of these names, every pair closed."""
    pairs = [pair for pair in text.split(PAIR_END) if pair]
    kept = [pair for pair in pairs if pair.partition(properties.NAME_END)[0] not in unwanted]
    return b"".join([pair + PAIR_END for pair in kept])


def last(text: bytes, name: bytes) -> bytes:
    """Return the last value of this name, empty when there is none: one search instead of a split.  Only for properties
    that a broker wrote, where no value is empty.
    """
    wanted = PAIR_END + name + b"\x01"
    at = text.rfind(wanted)
    if at < 0:
        if not text.startswith(wanted[1:]):
            return b""
        at = -1
    at += len(wanted)
    end = text.find(PAIR_END, at)
    return text[at:] if end < 0 else text[at:end]


def address(text: bytes) -> tuple[str, int] | None:
    """Topic and queue to which a hidden message is to be delivered; None when its properties name none."""
    topic, queue_id = last(text, REAL_TOPIC), last(text, REAL_QUEUE)
    if not topic or not queue_id.isdigit() or len(queue_id) > _QUEUE_DIGITS_MAX:
        return None
    return topic.decode("utf-8", "replace"), int(queue_id)


def handle(text: bytes, broker: str) -> bytes:
    """The recall handle of a message hidden with these properties; empty when it has none (a cancel, a redelivery)."""
    found = address(text)
    due_ms = fields.integer(last(text, OUT_MS).decode("ascii", "replace"))
    unique_key = last(text, b"UNIQ_KEY")
    if found is None or not due_ms or last(text, CANCELS) or last(text, REAL_TOPIC).startswith(_RETRY_PREFIX):
        return b""
    if not unique_key:
        return b""
    words = f"v1 {found[0]} {broker} {due_ms} {unique_key.decode('utf-8', 'replace')}"
    return base64.urlsafe_b64encode(words.encode())


def handles(sends: Sequence[Send], topic: str, broker: str) -> list[bytes]:
    """The recall handles of stored messages, empty for those of another topic than `topic`."""
    return [handle(send.properties, broker) if send.topic == topic else b"" for send in sends]


def codes(entries: Sequence[Entry], levels_ms: Sequence[int]) -> list[int]:
    """The codes of entries of the topic for levels, or, without `levels_ms`, of that for times.

    Where a record names no time it is the tag hash.
    """
    if levels_ms:
        return [_level_code(entry, levels_ms) for entry in entries]
    return [timer_code(entry.properties, entry.tags_code) for entry in entries]


def _level_code(entry: Entry, levels_ms: Sequence[int]) -> int:
    level = properties.get(entry.properties, LEVEL) or b""
    if not level.isdigit() or not level.strip(b"0"):
        return entry.tags_code
    number = int(level) if len(level) <= _LEVEL_DIGITS_MAX else len(levels_ms)
    return entry.store_ms + levels_ms[min(number, len(levels_ms)) - 1]


def timer_code(text: bytes, otherwise: int) -> int:
    """The code of a timer record with these properties; `otherwise` when they name no time."""
    out, cancels, topic, retimed = pick(text, (OUT_MS, CANCELS, REAL_TOPIC, RETIMED))
    out_ms = None if out is None else fields.integer(out.decode("utf-8", "replace"))
    if out_ms is None or not HASH_MAX <= out_ms < RETIME_BIT:
        return otherwise
    if cancels is not None:
        return out_ms | CANCEL_BIT
    if topic is not None and topic.startswith(_REVIVE_PREFIX):
        return out_ms | LEASE_BIT
    return out_ms if retimed is None else out_ms | RETIME_BIT


def pack_coded(entries: Sequence[Entry], found: Sequence[int]) -> bytes:
    """The packed queue entries of these records, with these codes."""
    return b"".join(
        [_ENTRY.pack(entry.log_offset, entry.size, code) for entry, code in zip(entries, found, strict=True)]
    )


def entries_at(
    buffer: bytes | bytearray | memoryview, at: int, count: int, first: int, offsets: Sequence[int]
) -> list[Place]:
    """The queue entries at these queue offsets, up to the first that is not among the `count` from buffer[at] on.

    The entry at buffer[at] is that of queue offset `first`.  Codes are without LEASE_BIT and RETIME_BIT.
    """
    if at < 0:
        raise ValueError(f"delays: entries from {at} on")
    found: list[Place] = []
    count = min(count, (len(buffer) - at) // ENTRY_BYTES)
    for offset in offsets:
        if not first <= offset < first + count:
            break
        log_offset, size, code = _ENTRY.unpack_from(buffer, at + (offset - first) * ENTRY_BYTES)
        found.append((log_offset, size, code & ~(LEASE_BIT | RETIME_BIT) if code >= RETIME_BIT else code))
    return found


def ready(
    found: Sequence[Place], due_ms: int, bytes_max: int, log_start: int, log_end: int, segment_bytes: int
) -> int:
    """How many of these places from the first on name a time up to `due_ms` and a record that is in the log.

    Ends before the one with which there would be more than `bytes_max`, but for the first, and before a cancel.
    """
    total = 0
    for number, (log_offset, size, code) in enumerate(found):
        total += size
        if (
            not HASH_MAX <= code <= due_ms
            or size == PRE_BLANK_SIZE
            or size <= 0
            or log_offset < log_start
            or size > log_end - log_offset
            or log_offset % segment_bytes + size > segment_bytes
            or (number and total > bytes_max)
        ):
            return number
    return len(found)


def deliveries(
    memory: bytes | bytearray | memoryview, base: int, found: Sequence[Place], hidden: str
) -> list[Send | None]:
    """The messages of hidden records as consumers get them; None for one that cannot be read or has no address.

    memory[0] is log offset `base`.  Nothing is delivered to the topic `hidden`.  `prepared_offset` names the record.
    """
    made: list[Send | None] = []
    for log_offset, size, _ in found:
        send = _message(memory, log_offset - base, size, log_offset)
        there = None if send is None else address(send.properties)
        if send is None or there is None or there[0] == hidden:
            made.append(None)
            continue
        send.topic, send.queue_id = there
        send.sys_flag &= ~NO_QUEUE_BIT
        send.prepared_offset = log_offset
        made.append(send)
    return made


def _message(memory: bytes | bytearray | memoryview, at: int, size: int, log_offset: int) -> Send | None:
    """The message of the record of just this size and log offset at memory[at]; None for anything else there."""
    if not 0 <= at <= len(memory) - size or size < RECORD_BYTES_MIN:
        return None
    if _HEAD.unpack_from(memory, at) != (size, log_offset):
        return None
    try:
        return message_at(memory, at, at + size)
    except CorruptRecordError:
        return None
