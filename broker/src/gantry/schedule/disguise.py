"""Hiding a delayed message until its time: it gets another topic, and its own is kept in properties.

    by level    topic SCHEDULE_TOPIC_XXXX, queue level - 1; due when the level's duration has passed since it was stored
    by time     topic rmq_sys_wheel_timer, queue 0; due at the time in TIMER_OUT_MS (ms since the epoch)

REAL_TOPIC and REAL_QID hold its own topic and queue.  Everything else is unchanged; what an earlier delay added is
removed.  `delivery` makes the real message again.  Its properties keep what was added here, as RocketMQ's do (a
consumer sees DELAY or TIMER_OUT_MS).  Its field for a prepared message's log offset holds the offset of the delayed
record: by this a start finds out what was delivered before a crash.

A *cancel* is a message in the timer topic too: TIMER_DEL_UNIQKEY names topic and unique key of the message that is not
to be delivered, TIMER_OUT_MS the time when that message is due.

`leaves.delays` does the same to whole runs of messages that need no closer look.

Source: RocketMQ's `HookUtils` and `TimerMessageStore`; facts 6 of the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import delays, fields, frames, properties, zerosectors
from gantry.leaves.queues import NO_QUEUE_BIT
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record

REAL_TOPIC = delays.REAL_TOPIC
REAL_QUEUE = delays.REAL_QUEUE
OUT_MS = delays.OUT_MS
ROLLED = delays.ROLLED
CARRIED = delays.CARRIED
CANCELS = delays.CANCELS
RECALL_TAG = b"_RECALL_TAG_"

_OF_BROKERS = frozenset({b"MSG_REGION", b"TRACE_ON", b"CLUSTER"})

_MOMENTS = frozenset({b"TIMER_DELIVER_MS", b"__STARTDELIVERTIME"})
_HINTS = (REAL_TOPIC, b"TIMER_", CARRIED, delays.RETIMED, delays.LEVEL, b"__STARTDELIVERTIME")


class RequestedDelay(NamedTuple):
    """The delay that a message asks for: a level (then `at_ms` is not used), or a time.

    `at_ms` is a moment of the wall clock if `is_moment`, else a time of the steady clock: the end of a duration.
    """

    level: int
    at_ms: int
    is_moment: bool = False


def requested_delay(text: bytes, now_ms: int) -> RequestedDelay | str:
    """Return the delay that these properties ask for, or a text that says what is wrong with them.

    now_ms: the steady clock.  RocketMQ: a level overrules times; of the times the first of TIMER_DELAY_SEC,
    TIMER_DELAY_MS, TIMER_DELIVER_MS counts, and the cloud product's __STARTDELIVERTIME after them.
    """
    level = _number(text, delays.LEVEL)
    if level is None:
        return "DELAY is no number; expected a level from 1 on"
    if level > 0:
        return RequestedDelay(level, 0)
    for name, base_ms, unit in zip(delays.TIMES, (now_ms, now_ms, 0, 0), (1000, 1, 1, 1), strict=True):
        if properties.get(text, name) is not None:
            number = _number(text, name)
            if number is None:
                return f"{name.decode()} is no number; expected milliseconds, or seconds where the name says so"
            return RequestedDelay(0, base_ms + number * unit, name in _MOMENTS)
    return RequestedDelay(0, 0)


def is_moment(text: bytes) -> bool:
    """Return whether a timer message with these properties waits for a moment of the wall clock, which its producer
    named; else it waits for the end of a duration, as one does that was given another time.
    """
    if properties.get(text, delays.RETIMED) is not None or _number(text, delays.LEVEL):
        return False
    return next((name in _MOMENTS for name in delays.TIMES if properties.get(text, name) is not None), False)


def by_level(send: Send, level: int, level_max: int) -> None:
    """Disguise a message for delivery after a level's duration (1 to level_max; higher ones count as level_max)."""
    assert level > 0, "a level counts from 1"
    level = min(level, level_max)
    text = _without(send.properties, delays.BY_LEVEL)
    _hide(send, text + b"DELAY\x01%d\x02" % level, names.SCHEDULE_TOPIC, level - 1)


def by_time(send: Send, deliver_at_ms: int) -> None:
    """Disguise a message for delivery at this time, never before; a past time means at once."""
    text = _without(send.properties, delays.OURS)
    _hide(send, text + b"%b\x01%d\x02" % (OUT_MS, deliver_at_ms), names.TIMER_TOPIC, 0)


def cancel(real_topic: str, unique_key: bytes, out_ms: int, born: tuple[int, bytes]) -> Send:
    """Make the message that cancels another one; `born`: its time and host.  RocketMQ: with the same unique key."""
    pairs = (
        (b"TAGS", RECALL_TAG),
        (b"UNIQ_KEY", unique_key),
        (CANCELS, cancel_key(real_topic, unique_key)),
        (OUT_MS, b"%d" % out_ms),
        (REAL_TOPIC, real_topic.encode()),
        (REAL_QUEUE, b"0"),
    )
    text = b"".join([b"%b\x01%b\x02" % pair for pair in pairs])
    send = frames.Send(topic=names.TIMER_TOPIC, born_ms=born[0], born_host=born[1], properties=text, body=b"0")
    send.unique_key = unique_key
    return send


def cancel_key(real_topic: str, unique_key: bytes) -> bytes:
    """Return the name by which a cancel refers to its message (RocketMQ 5.3)."""
    return real_topic.encode() + unique_key


class Address(NamedTuple):
    """Topic and queue to which a disguised message is delivered, and its unique key there."""

    topic: str
    queue_id: int
    unique_key: bytes


def address(text: bytes) -> Address | None:
    """Read the address from a disguised message's properties; None when they have none."""
    found = delays.address(text)
    return None if found is None else Address(*found, delays.last(text, b"UNIQ_KEY"))


def delivery(record: Record, topic: str, queue_id: int) -> Send:
    """Make the real message of a disguised record, which RocketMQ's broker may have written."""
    return frames.Send(
        topic=topic,
        queue_id=queue_id,
        sys_flag=record.sys_flag & ~NO_QUEUE_BIT,
        born_ms=record.born_ms,
        flag=record.flag,
        properties=record.properties,
        reconsume_times=record.reconsume_times,
        body=record.body,
        born_host=record.born_host,
        prepared_offset=record.log_offset,
    )


def carried(record: Record, due_ms: int) -> Send | None:
    """Make a copy for the timer topic, due at the same time (RocketMQ: a rolled timer message).

    What brokers say of themselves is left out where there is no room for it; None when there is none even so.
    """
    rolled = (_number(record.properties, ROLLED) or 0) + 1
    text = _without(record.properties, frozenset({OUT_MS, ROLLED, CARRIED}))
    text += b"%b\x01%d\x02%b\x01%d\x02%b\x01%d\x02" % (OUT_MS, due_ms, ROLLED, rolled, CARRIED, record.log_offset)
    text = zerosectors.guarded(text, PROPERTIES_BYTES_MAX)
    if len(text) > PROPERTIES_BYTES_MAX:
        text = zerosectors.guarded(delays.without(text, _OF_BROKERS), PROPERTIES_BYTES_MAX)
    if len(text) > PROPERTIES_BYTES_MAX:
        return None
    send = delivery(record, names.TIMER_TOPIC, 0)
    send.properties = text
    return send


def _hide(send: Send, text: bytes, topic: str, queue_id: int) -> None:
    real_topic = send.topic.encode()
    send.properties = text + b"%b\x01%b\x02%b\x01%d\x02" % (REAL_TOPIC, real_topic, REAL_QUEUE, send.queue_id)
    send.traits &= ~properties.TRAIT_ENDS_OPEN
    send.topic, send.queue_id = topic, queue_id


def _without(text: bytes, unwanted: frozenset[bytes]) -> bytes:
    """Return the properties closed and without these pairs; most messages have none of them."""
    if text and text[-1:] != properties.PAIR_END:
        text += properties.PAIR_END
    if not any(hint in text for hint in _HINTS):
        return text
    return delays.without(text, unwanted)


def _number(text: bytes, name: bytes) -> int | None:
    """Return the number under a name: 0 when it is missing, None when it is not a number."""
    value = properties.get(text, name)
    return 0 if value is None else fields.integer(value.decode("utf-8", "replace"))
