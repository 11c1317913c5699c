"""Periodic jobs: on time, in slices, and essential."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gantry.broker.jobs import Job, Jobs
from testkit.simclock import SimClock


def test_a_job_runs_again_a_period_after_it_ended() -> None:
    async def play() -> None:
        third = asyncio.Event()
        runs: list[int] = []

        def work() -> None:
            runs.append(1)
            if len(runs) == 3:
                third.set()

        jobs = Jobs(SimClock(), failures.append)
        jobs.start([Job("work", 0.001, work)])
        await third.wait()
        jobs.stop()
        assert jobs.counts["work"].runs == 3 and not failures

    failures: list[str] = []
    asyncio.run(play())


def test_a_long_job_gives_the_loop_back_after_each_slice() -> None:
    async def play() -> None:
        clock = SimClock()
        done = asyncio.Event()
        slices: list[int] = []
        turns = 0

        def work() -> Iterator[None]:
            for _ in range(10):
                clock.advance(2)
                slices.append(turns)
                yield
            done.set()

        jobs = Jobs(clock, lambda name: None)
        jobs.start([Job("long", 0.001, work)])
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)
        jobs.stop()
        assert len(slices) == 10 and len(set(slices)) == 10, "others had the loop between"

    asyncio.run(play())


def test_a_slice_that_takes_too_long_is_counted() -> None:
    async def play() -> None:
        clock = SimClock()
        done = asyncio.Event()

        def work() -> None:
            clock.advance(7)
            done.set()

        jobs = Jobs(clock, lambda name: None)
        jobs.start([Job("slow", 0.001, work)])
        await done.wait()
        jobs.stop()
        counts = jobs.counts["slow"]
        assert counts.over == 1 and abs(counts.longest_s - 0.007) < 1e-9

    asyncio.run(play())


def test_a_job_that_raises_is_reported_by_name() -> None:
    async def play() -> None:
        reported = asyncio.Event()
        logged: list[dict[str, object]] = []
        names: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context))

        def fail() -> None:
            raise ZeroDivisionError

        def report(name: str) -> None:
            names.append(name)
            reported.set()

        jobs = Jobs(SimClock(), report)
        jobs.start([Job("bad", 0.001, fail)])
        await reported.wait()
        await asyncio.sleep(0)
        jobs.stop()
        assert names == ["bad"] and isinstance(logged[0]["exception"], ZeroDivisionError)

    asyncio.run(play())
