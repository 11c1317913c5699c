"""Metrics of delayed messages: families for the table in `families`.

RocketMQ 5 has the same under other names: rocketmq_timing_messages is
gantry_delay_pending{level="time"}, rocketmq_timer_dequeue_total and what its schedule service delivers are
gantry_delay_delivered_total, rocketmq_timer_dequeue_latency is gantry_delay_lateness_seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, HISTOGRAM, Counted, Family, Sample, one
from gantry.schedule.counts import LATENESS_BOUNDS_S

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

LATENESS = "gantry_delay_lateness_seconds"


def pending(parts: Parts) -> Iterator[Sample]:
    """Yield the delayed messages by level, and those with their own delivery time."""
    for line in list(parts.delays.book.lines.values()):
        yield (str(line.level),), line.end - line.next
    yield ("time",), parts.delays.pending


def delivered(parts: Parts) -> Iterator[Sample]:
    """Yield the deliveries, by level or by time."""
    for kind, count in parts.delays.counts.delivered.items():
        yield (kind,), count


def dropped(parts: Parts) -> Iterator[Sample]:
    """Yield the messages that were not delivered, by reason."""
    counts = parts.delays.counts
    yield ("cancelled",), counts.cancelled
    yield ("topic deleted",), counts.discarded
    yield ("unreadable",), counts.unreadable
    yield ("life over",), counts.expired


def lateness(parts: Parts) -> Counted:
    """Return the histogram of seconds between due time and delivery."""
    counts = parts.delays.counts
    return LATENESS_BOUNDS_S, counts.latenesses, counts.late_sum_s


FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE,
        "gantry_delay_pending",
        "Delayed messages that are not delivered: by delay level, and with a time of their own (time).",
        ("level",),
        pending,
    ),
    Family(
        COUNTER, "gantry_delay_delivered", "Delayed messages delivered: by level or by time.", ("kind",), delivered
    ),
    Family(
        COUNTER,
        "gantry_delay_dropped",
        "Delayed messages not delivered: taken back, their topic deleted, their life over, or unreadable.",
        ("reason",),
        dropped,
    ),
    Family(
        COUNTER,
        "gantry_delay_recalls",
        "Delayed messages taken back by producers or by hand.",
        (),
        one(lambda p: p.delays.counts.recalls),
    ),
    Family(
        COUNTER,
        "gantry_delay_retimed",
        "Delayed messages that got another time.",
        (),
        one(lambda p: p.delays.counts.retimed),
    ),
    Family(
        COUNTER,
        "gantry_delay_carried",
        "Delayed messages copied to the log's end because their segment was about to go.",
        (),
        one(lambda p: p.delays.counts.carried),
    ),
    Family(HISTOGRAM, LATENESS, "From when a delayed message was due to its delivery.", (), lambda p: ()),
)
