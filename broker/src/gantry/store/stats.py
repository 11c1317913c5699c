"""Statistics of a store: one value, taken in one turn of the loop, for runtime information and metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStats:
    """For the runtime information and the metrics; offsets are log offsets, `disk_used` is a share of 1.

    oldest_ms: store time of the first record that is still there, -1 when there is none.
    """

    log_start: int
    written: int
    flushed: int
    confirmed: int
    dispatched: int
    oldest_ms: int
    newest_ms: int
    disk_used: float
    disk_total_bytes: int
    disk_free_bytes: int
    queues: int
