"""Counters of delayed messages, as plain integers; read by /metrics and `gantry delay`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Seconds from when a message was due to when its delivery was written.
LATENESS_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 60.0, 600.0)

LEVEL, TIMER = "level", "timer"


class DelayCounts:
    """Counters of one broker since its start."""

    __slots__ = (
        "cancelled",
        "carried",
        "delivered",
        "discarded",
        "expired",
        "late_sum_s",
        "latenesses",
        "recalls",
        "retimed",
        "stuck",
        "unreadable",
    )

    def __init__(self) -> None:
        self.delivered = {LEVEL: 0, TIMER: 0}
        self.cancelled = 0  # not delivered, because they were cancelled
        self.discarded = 0  # not delivered, because their topic was deleted
        self.expired = 0  # not delivered, because their life was over
        self.carried = 0  # copied to the log's end, because their segment was about to go
        self.stuck = 0  # now: those to be copied for that reason and cannot be
        self.unreadable = 0  # records that could not be read, or without topic and queue of delivery
        self.recalls = 0  # accepted requests to cancel a message
        self.retimed = 0  # accepted requests to give a message another time
        self.latenesses = [0] * (len(LATENESS_BOUNDS_S) + 1)
        self.late_sum_s = 0.0

    def deliver_all(self, kind: str, now_ms: int, dues_ms: Sequence[int]) -> None:
        """Count deliveries that were written now, by when they were due."""
        self.delivered[kind] += len(dues_ms)
        latenesses = self.latenesses
        for due_ms in dues_ms:
            seconds = (now_ms - due_ms) / 1000 if due_ms < now_ms else 0.0
            self.late_sum_s += seconds
            latenesses[bisect_left(LATENESS_BOUNDS_S, seconds)] += 1

    def deliver(self, kind: str, late_ms: int) -> None:
        """Count a delivery that was written `late_ms` after it was due."""
        self.delivered[kind] += 1
        seconds = max(0, late_ms) / 1000
        self.late_sum_s += seconds
        self.latenesses[bisect_left(LATENESS_BOUNDS_S, seconds)] += 1
