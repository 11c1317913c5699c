"""A disk that makes no progress is told from one that is slow, and from one of which nothing is asked."""

from __future__ import annotations

from gantry.store.background import InlineBackground
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import message, opened, small


def test_a_sync_that_does_not_end_is_counted_from_the_look_that_found_it_and_ends_with_any_progress() -> None:
    clock, background = SimClock(), InlineBackground(at_once=False)
    store = opened(small("/s", flush="SYNC_FLUSH"), clock, background, SimDisk())  # type: ignore[arg-type]
    while background.step():
        pass
    assert store.stalling.look() == (0.0, 0.0)
    clock.advance(60_000)
    assert store.stalling.look() == (0.0, 0.0), "nothing is due"
    store.append([message()])
    assert store.stalling.look()[0] == 0.0
    clock.advance(4_000)
    store.append([message()])  # what is asked for meanwhile is no progress
    assert store.stalling.look()[0] == 4.0
    background._flusher.step()
    store.append([message()])
    assert store.stalling.look()[0] == 0.0, "slow, and not hung"
    clock.advance(1_000)
    assert store.stalling.look()[0] == 1.0
    background._flusher.step()
    assert store.stalling.look()[0] == 0.0
    store.close()


def test_a_housekeeper_hangs_when_no_job_of_it_ends() -> None:
    clock, background = SimClock(), InlineBackground(at_once=False)
    store = opened(small("/s"), clock, background, SimDisk())
    while background.step():
        pass
    for _ in range(2):
        background.housekeeper.submit(lambda: None)
    assert store.stalling.look()[1] == 0.0
    clock.advance(50_000)
    assert store.stalling.look()[1] == 50.0
    background._housekeeper.step()
    assert store.stalling.look()[1] == 0.0, "the other job has just begun"
    background._housekeeper.step()
    clock.advance(50_000)
    assert store.stalling.look()[1] == 0.0
    store.close()
