"""When a flush is asked for: with a log that never touches a disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.errors import StoreError, SyncFailedError
from gantry.store.background import InlineBackground
from gantry.store.flushing import LogFlush
from gantry.store.settings import Flush
from gantry.store.watermarks import Watermark
from testkit.simclock import SimClock
from testkit.smallstore import small


class FakeLog:
    """Counts syncs; fails when told to."""

    path = "log"

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.syncs = 0
        self.fails = False
        self.meanwhile: Callable[[], None] = lambda: None

    def files_between(self, start: int, end: int) -> list[FakeLog]:
        self.ranges.append((start, end))
        return [self]

    def sync_data(self) -> None:
        self.syncs += 1
        self.meanwhile()
        if self.fails:
            raise SyncFailedError("fdatasync log: Input/output error")


class Play:
    def __init__(self, flush: Flush, at_once: bool = True, **changes: int) -> None:
        self.log, self.clock, self.background = FakeLog(), SimClock(), InlineBackground(at_once)
        self.written = Watermark(0)
        self.flushed = Watermark(0, self.written)
        self.failures: list[StoreError] = []
        self.flush = LogFlush(
            self.log,  # type: ignore[arg-type]
            self.written,
            self.flushed,
            self.background.flusher,
            small("/s", flush=flush, **changes),
            self.clock,
            self.failures.append,
        )

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.flush.tick()


def test_sync_flush_flushes_what_is_written() -> None:
    play = Play(Flush.SYNC)
    play.written.advance(100)
    assert play.flushed.offset == 100 and play.log.ranges == [(0, 100)]


def test_sync_flush_shares_one_sync_between_all_that_came_meanwhile() -> None:
    play = Play(Flush.SYNC, at_once=False)
    for end in (100, 200, 300):
        play.written.advance(end)
    play.background.step()
    assert play.flushed.offset == 300 and play.log.syncs == 1


@pytest.mark.parametrize("written_ms", range(0, 500, 50))
def test_async_flush_has_one_byte_on_the_disk_within_half_a_second(written_ms: int) -> None:
    play = Play(Flush.ASYNC)
    for _ in range(0, written_ms, 50):
        play.pass_ms(50)
    play.written.advance(1)
    for _ in range(0, 450, 50):  # the store is ticked every 50 ms, and a sync may take as long
        play.pass_ms(50)
    assert play.flushed.offset == 1


def test_least_pages_of_a_broker_conf_wait_for_so_many_dirty_pages() -> None:
    play = Play(Flush.ASYNC, flush_pages=4)
    play.written.advance(3 * 4096)
    play.pass_ms(500)
    assert play.flushed.offset == 0
    play.written.advance(4 * 4096)
    play.pass_ms(399)
    assert play.flushed.offset == 0
    play.pass_ms(1)
    assert play.flushed.offset == 4 * 4096


def test_the_thorough_interval_of_a_broker_conf_flushes_what_least_pages_left() -> None:
    play = Play(Flush.ASYNC, flush_pages=4, flush_full_ms=3000)
    play.written.advance(1)
    for _ in range(5):
        play.pass_ms(500)
    assert play.flushed.offset == 0
    play.pass_ms(500)
    assert play.flushed.offset == 1


def test_nothing_to_flush_is_no_flush() -> None:
    play = Play(Flush.ASYNC)
    play.pass_ms(20_000)
    play.flush.finish()
    assert play.log.syncs == 0


def test_a_failed_sync_is_told_once_and_nothing_is_tried_after_it() -> None:
    play = Play(Flush.SYNC)
    play.log.fails = True
    play.written.advance(100)
    play.log.fails = False
    play.written.advance(200)
    play.flush.finish()
    assert play.flushed.offset == 0 and play.log.syncs == 1
    assert [type(error) for error in play.failures] == [SyncFailedError]


def test_a_sync_asked_for_while_another_failed_makes_nothing_durable() -> None:
    """Linux reports the lost pages once and takes them for clean: the next fdatasync succeeds and means nothing."""
    play = Play(Flush.SYNC, at_once=False)
    play.log.fails = True
    play.log.meanwhile = lambda: play.written.advance(200)
    play.written.advance(100)
    play.background.step()
    play.log.fails = False
    play.background.step()
    assert play.log.syncs == 2 and play.flushed.offset == 0
    assert [type(error) for error in play.failures] == [SyncFailedError]


def test_what_a_failed_store_still_syncs_is_not_called_durable() -> None:
    play = Play(Flush.SYNC, at_once=False)
    play.written.advance(100)
    play.flush.give_up()
    play.background.step()
    play.written.advance(200)
    assert play.flushed.offset == 0 and play.log.syncs == 1


def test_finishing_makes_everything_durable() -> None:
    play = Play(Flush.ASYNC, at_once=False)
    play.written.advance(5)
    play.flush.finish()
    assert play.flushed.offset == 5
