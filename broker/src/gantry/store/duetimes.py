"""Queue entries of delayed messages: in place of the tag hash they hold the time when the message is due.

    SCHEDULE_TOPIC_XXXX     store time + the level's duration (RocketMQ's own rule)
    rmq_sys_wheel_timer     TIMER_OUT_MS; a cancel has CANCEL_BIT in it as well, a message for a revive topic
                            LEASE_BIT, one that replaces another one RETIME_BIT

So the queue of the timer topic is the timer's index, and is rebuilt with the queues from the log.
RocketMQ's broker writes the tag hash into entries of the timer topic, and does not read it there; a hash has 32 bits,
so its size tells it from a time (`is_time`); for such an entry the due time is read from its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.leaves import delays

if TYPE_CHECKING:
    from gantry.leaves.records import Entry

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})

CANCEL_BIT = delays.CANCEL_BIT
LEASE_BIT = delays.LEASE_BIT
RETIME_BIT = delays.RETIME_BIT


def codes(topic: str, entries: Sequence[Entry], levels_ms: Sequence[int]) -> list[int]:
    """The codes of entries of one of the two topics; the tag hash of those that name no time."""
    return delays.codes(entries, () if topic == TIMER_TOPIC else levels_ms)


def due_ms(value: int) -> int:
    """Return the time in ms that a code of the timer topic names."""
    return value & (RETIME_BIT - 1)


def is_time(value: int) -> bool:
    """Whether a code of the timer topic says when its message is due."""
    return value >= delays.HASH_MAX
