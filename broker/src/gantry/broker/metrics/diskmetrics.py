"""Metrics of the disk and of retention: families for the table in `families`.

RocketMQ 5 has the same under another name: rocketmq_storage_message_reserve_time is
gantry_log_oldest_age_seconds (in milliseconds there).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample, one

if TYPE_CHECKING:
    from gantry.broker.parts import Parts


def oldest_s(parts: Parts) -> float:
    """Return the age of the first message of the log in seconds; 0 for an empty log."""
    stored_ms = parts.store.reader.oldest_ms()
    return 0.0 if stored_ms < 0 else max(0, parts.clock.now_ms() - stored_ms) / 1000


def carried(parts: Parts) -> Iterator[Sample]:
    """Yield the messages that were copied to the log's end so that their segment can be deleted."""
    yield ("transaction",), parts.transactions.counts.put_back
    yield ("delayed",), parts.delays.counts.carried


def stuck(parts: Parts) -> Iterator[Sample]:
    """Yield the messages that could not be copied for lack of room."""
    yield ("transaction",), parts.transactions.counts.stuck
    yield ("delayed",), parts.delays.counts.stuck


FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE,
        "gantry_disk_used_ratio",
        "Share of the store's disk in use.",
        (),
        one(lambda p: p.census.stats.disk_used),
    ),
    Family(
        GAUGE,
        "gantry_disk_unanswered_seconds",
        "How long a sync of the log or a file job has been under way without any progress.",
        (),
        one(lambda p: p.stalled.unanswered_s),
    ),
    Family(GAUGE, "gantry_log_oldest_age_seconds", "Age of the oldest message in the log.", (), one(oldest_s)),
    Family(
        COUNTER,
        "gantry_segments_deleted",
        "Segments of the log that retention deleted.",
        (),
        one(lambda p: p.store.retention.dropping.segments),
    ),
    Family(
        GAUGE,
        "gantry_segments_waiting",
        "Segments that are to go and have not gone: what is owed is carried on first.",
        (),
        one(lambda p: p.store.retention.waiting),
    ),
    Family(
        GAUGE,
        "gantry_segments_lingering",
        "Deleted segments that a consumer still reads; the disk gets their room back later.",
        (),
        one(lambda p: p.store.retention.dropping.lingering),
    ),
    Family(
        COUNTER,
        "gantry_owed_carried",
        "Open halves and delayed messages copied to the log's end, so that their segment can go.",
        ("kind",),
        carried,
    ),
    Family(
        GAUGE,
        "gantry_owed_stuck",
        "Those of which no copy can be made now; their segment stays, and the log names them and why.",
        ("kind",),
        stuck,
    ),
)
