"""Counting what waits while messages are cancelled."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import cast

from gantry.clock import Clock
from gantry.metadata.topics import Topics
from gantry.schedule.book import DelayBook
from gantry.schedule.waiting import WaitingCounts
from gantry.store.reading import Reader


def test_a_cancel_during_a_count_lets_it_end_and_the_next_one_begin_again() -> None:
    reader = SimpleNamespace(places=lambda topic, queue_id, offset, count: [])  # no record is there any more
    book = SimpleNamespace(first_offset=0, timer_end=300)
    counts = WaitingCounts(cast(Reader, reader), cast(DelayBook, book), cast(Topics, None), cast(Clock, None))
    count = counts.counting()
    assert next(count) == ()
    counts.recount()
    assert len(list(islice(count, 1000))) == 2, "three pieces of 128 offsets in all"
    assert len(list(islice(counts.counting(), 1000))) == 3
    assert list(counts.counting()) == []
