"""Queue entries of delayed messages: in place of the tag hash they hold the time when the message is due.

    SCHEDULE_TOPIC_XXXX     store time + the level's duration (RocketMQ's own rule)
    rmq_sys_wheel_timer     TIMER_OUT_MS; a cancel has CANCEL_BIT in it as well

So the queue of the timer topic is the timer's index, and is rebuilt with the queues from the log.
RocketMQ's broker writes the tag hash into entries of the timer topic, and does not read it there; a hash has 32 bits,
so its size tells it from a time (`is_time`); for such an entry the due time is read from its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.leaves import fields, properties

if TYPE_CHECKING:
    from gantry.leaves.records import Entry

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})

CANCEL_BIT = 1 << 62
_HASH_MAX = 1 << 32


def code(entry: Entry, levels_ms: Sequence[int]) -> int:
    """The code of an entry of either topic; its tag hash when it names no time."""
    if entry.topic == TIMER_TOPIC:
        return timer_code(entry.properties, entry.tags_code)
    level = properties.get(entry.properties, b"DELAY") or b""
    if not level.isdigit() or int(level) == 0:
        return entry.tags_code
    return entry.store_ms + levels_ms[min(int(level), len(levels_ms)) - 1]


def timer_code(text: bytes, otherwise: int) -> int:
    """The code of a timer record with these properties."""
    out = properties.get(text, b"TIMER_OUT_MS")
    out_ms = None if out is None else fields.integer(out.decode("utf-8", "replace"))
    if out_ms is None or not _HASH_MAX <= out_ms < CANCEL_BIT:
        return otherwise
    return out_ms | CANCEL_BIT if properties.get(text, b"TIMER_DEL_UNIQKEY") is not None else out_ms


def is_time(value: int) -> bool:
    """Whether a code of the timer topic says when its message is due."""
    return value >= _HASH_MAX
