"""The settings of a store.  Sizes default to RocketMQ's, so that folders can be exchanged with its broker.

The three file sizes belong to the folder: a store opened with other sizes than it was written with is
refused, because file names are offsets and a different size would misread them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

GIB = 1 << 30
MIB = 1 << 20

# RocketMQ's messageDelayLevel, in milliseconds: entries of SCHEDULE_TOPIC_XXXX carry the delivery time
# where others carry the tag hash, so the table is needed to rebuild queues.
_DELAY_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_DELAY_LEVELS_MS = tuple(seconds * 1000 for seconds in _DELAY_LEVELS_S)


class Flush(enum.StrEnum):
    """When written bytes are made durable; the values are RocketMQ's."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """All that a store needs to know; `root` is the folder that holds commitlog, consumequeue, index, config."""

    root: str
    segment_bytes: int = GIB
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    flush: Flush = Flush.ASYNC
    # ASYNC_FLUSH: what is written is durable so much later.  Fewer dirty pages than flush_pages wait for flush_full_ms;
    # RocketMQ has 4 there, by which a quiet broker loses 10 s and not half a second.
    flush_interval_ms: int = 500
    flush_pages: int = 0
    flush_full_ms: int = 10_000
    # How often queues, index and the recovery file are brought up to date; what a start after a crash must
    # scan is what was written in about two such periods.
    checkpoint_interval_ms: int = 1_000
    # So many queue files or more are made durable by one sync of their file system.  That also writes the dirty pages
    # of other programs, so a few files are synced each by itself.
    sync_together_min: int = 64
    # Where this broker is reached: ip (4 or 16 bytes) and port (i32); it goes into every record.
    store_host: bytes = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
    # A pull that lies further behind the end of the log than this is read by the cold reader first.
    warm_bytes: int = GIB
    # Retention, RocketMQ's values: at these hours what is older than this goes; above the first ratio of used
    # disk at any hour; above the second the oldest, old enough or not; above the third nothing is written.
    reserved_ms: int = 72 * 3600 * 1000
    delete_hours: frozenset[int] = frozenset({4})
    disk_used_max: float = 0.75
    disk_used_clean: float = 0.85
    disk_used_refuse: float = 0.90
    clean_forcibly: bool = True
    delay_levels_ms: tuple[int, ...] = _DELAY_LEVELS_MS
    # A member of a replicated group: a start shows what was known to be confirmed, the rest waits for the group.
    keeps_tail: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "flush", Flush(self.flush))
        assert self.segment_bytes >= 4096 and self.segment_bytes % 4096 == 0, "segments are whole pages"
        assert self.queue_file_entries > 0 and self.index_slots > 0 and self.index_entries > 1
        assert len(self.store_host) in (8, 20), "store_host is ip and port packed"

    @property
    def queue_file_bytes(self) -> int:
        """Bytes of one consume queue file."""
        return self.queue_file_entries * 20

    @property
    def index_file_bytes(self) -> int:
        """Bytes of one index file: header, slots, entries."""
        return 40 + self.index_slots * 4 + self.index_entries * 20

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """What belongs to the folder and may not change: segment bytes, queue entries, index slots and entries."""
        return self.segment_bytes, self.queue_file_entries, self.index_slots, self.index_entries
