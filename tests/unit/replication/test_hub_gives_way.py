"""A slave that is far behind while producers need the master: it waits, but for what it has in any case."""

from __future__ import annotations

import asyncio

from testkit.slavelinkplay import Play, playing
from testkit.turning import until


def strain(play: Play) -> None:
    """Two seconds of a loop that has no time left, and producers."""
    for _ in range(20):
        play.clock.by_s += 0.1
        play.wanted_s += 0.2
        play.master.log += b"record"
        play.slave_links.catch_up_pacing.look(play.clock.monotonic(), len(play.master.log))
    assert play.slave_links.catch_up_pacing.extra == 0


async def fill_and_wait(play: Play) -> int:
    """A log of 24 MiB, and what of it comes over while no time passes."""
    await until(lambda: play.connector.is_following)
    play.clock.stopped_s = play.clock.monotonic()
    play.master.log += bytes(24 << 20)
    strain(play)
    play.slave_links.wake()
    before = -1
    while before < len(play.slave.copy) < len(play.master.log):
        before = len(play.slave.copy)
        await asyncio.sleep(0.05)
    return before


async def test_a_slave_that_is_far_behind_waits_while_producers_need_the_master_and_arrives_by_the_clock() -> None:
    async with playing() as play:
        assert await fill_and_wait(play) < 8 << 20
        for _ in range(60):
            play.clock.by_s += 0.1
            play.wanted_s += 0.2
            play.master.log += b"record"
            play.slave_links.tick()
            await asyncio.sleep(0.01)
            if len(play.master.log) - len(play.slave.copy) < 4 << 20:
                break
        await until(lambda: len(play.slave.copy) == len(play.master.log))


async def test_a_slave_that_is_waited_for_is_fed_however_busy_the_master_is() -> None:
    async with playing() as play:
        play.master.needs.add(1)
        await fill_and_wait(play)
        await until(lambda: len(play.slave.copy) == len(play.master.log))
