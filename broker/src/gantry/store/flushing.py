"""When the log is made durable.

    SYNC_FLUSH    as soon as something is written; what is written while one fdatasync runs shares the next
    ASYNC_FLUSH   what is written is durable within `flush_interval_ms` (500), as long as one fdatasync takes less than
                  a tenth of that.  `flush_pages` above 0 is RocketMQ's economy: fewer dirty pages wait until
                  `flush_full_ms` have passed since everything was flushed.  It is off by default

The fdatasync itself is the flusher's, off the loop.  If it fails, nothing that was not flushed before can be
trusted any more: the failure is reported once, no further flush is tried, and the process must end.  A flush that was
under way or waited when the store failed may still succeed.  Its result is ignored and the mark stays where it is:
Linux reports lost pages to one fdatasync only and takes them for clean afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.store.background import Flusher
from gantry.store.commitlog import CommitLog
from gantry.store.settings import Flush, StoreSettings
from gantry.store.watermarks import Watermark

_PAGE_BYTES = 4096
# A look comes after this part of the interval, so that the period of tick() (50 ms) and the fdatasync end within it.
_EARLY = 0.8


class LogFlush:
    """Moves the flushed mark.  Loop thread only."""

    def __init__(
        self,
        log: CommitLog,
        written: Watermark,
        flushed: Watermark,
        flusher: Flusher,
        settings: StoreSettings,
        clock: Clock,
        on_failed: Callable[[StoreError], None],
    ) -> None:
        self._log = log
        self._written = written
        self._flushed = flushed
        self._flusher = flusher
        self._settings = settings
        self._clock = clock
        self._on_failed = on_failed
        self._looked_s = self._full_s = clock.monotonic()
        self._has_failed = False
        self.asked = flushed.offset  # a sync up to here was asked for
        if settings.flush is Flush.SYNC:
            written.listen(self.request)

    def request(self, target: int) -> None:
        """Have the log made durable up to target."""
        if self._flushed.offset >= target or self._has_failed:
            return
        self.asked = target
        try:
            self._flusher.request(self._log.files_between(self._flushed.offset, target), target, self._done)
        except StoreError as error:  # its thread has ended: nothing will ever be durable again
            self._done(target, error)

    def tick(self) -> None:
        """With ASYNC_FLUSH, request a flush when the interval has passed and enough pages are dirty."""
        now_s = self._clock.monotonic()
        settings = self._settings
        if settings.flush is Flush.SYNC or now_s - self._looked_s < settings.flush_interval_ms * _EARLY / 1000:
            return
        self._looked_s = now_s
        is_full = now_s - self._full_s >= settings.flush_full_ms / 1000
        dirty_pages = self._written.offset // _PAGE_BYTES - self._flushed.offset // _PAGE_BYTES
        if is_full or dirty_pages >= settings.flush_pages:
            self._full_s = now_s
            self.request(self._written.offset)

    def finish(self) -> None:
        """Flush everything that is written; blocks until it is durable."""
        self.request(self._written.offset)
        self._flusher.drain()

    def give_up(self) -> None:
        """Stop moving the mark, because the store has failed."""
        self._has_failed = True

    def _done(self, target: int, error: StoreError | None) -> None:
        if self._has_failed:
            return
        if error is None:
            self._flushed.advance(target)
        else:
            self._has_failed = True
            self._on_failed(error)
