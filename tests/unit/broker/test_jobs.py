"""Periodic jobs: on time, in slices, and essential."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from gantry.broker.jobs import Job, Jobs, next_run_s
from testkit.simclock import SimClock


async def test_a_job_runs_again_a_period_after_it_ended() -> None:
    failures: list[str] = []
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


async def test_a_long_job_gives_the_loop_back_after_each_slice() -> None:
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


async def test_a_slice_that_takes_too_long_is_counted() -> None:
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


async def test_a_job_that_raises_is_reported_by_name() -> None:
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


@given(st.floats(0, 1e7), st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0]))
def test_runs_stand_on_multiples_of_their_period_and_not_too_close(now: float, period_s: float) -> None:
    following = next_run_s(now, period_s)
    assert abs(following / period_s - round(following / period_s)) < 1e-3
    assert 0.25 * period_s <= following - now + 1e-6 and following - now <= 1.25 * period_s + 1e-6


def test_jobs_of_different_periods_wake_the_process_together() -> None:
    ends = [100.003, 100.011, 100.019, 100.024, 100.031]
    assert {round(next_run_s(end, 0.05), 6) for end in ends} == {100.05}
    assert round(next_run_s(100.003, 0.1), 6) == round(next_run_s(100.083, 0.02), 6) == 100.1


@given(st.floats(0, 1e7), st.floats(0.0001, 5.0))
def test_a_rest_is_never_longer_than_said_and_a_long_one_ends_when_others_wake(now: float, rest_s: float) -> None:
    following = next_run_s(now, 0.01, rest_s)
    assert now + 0.5 * min(rest_s, 0.1) <= following + 1e-6 and following <= now + rest_s + 1e-6
    if rest_s >= 0.1:
        assert abs(following / 0.05 - round(following / 0.05)) < 1e-3


async def test_a_job_rests_until_it_has_work_or_somebody_hurries_it() -> None:
    clock = SimClock()
    ran = asyncio.Event()
    rests = [3600.0, 0.0, 3600.0]

    jobs = Jobs(clock, lambda name: None)
    jobs.start([Job("resting", 0.001, ran.set, lambda: rests[0])])
    await asyncio.sleep(0.01)
    assert jobs.counts["resting"].runs == 0
    del rests[0]
    jobs.hurry("resting")
    jobs.hurry("resting")
    jobs.hurry("somebody else")
    await ran.wait()
    assert jobs.counts["resting"].runs == 1
    jobs.stop()
    jobs.hurry("resting")


async def test_a_job_that_is_hurried_while_it_works_goes_on_and_is_not_begun_again() -> None:
    clock = SimClock()
    begun, done = asyncio.Event(), asyncio.Event()

    def work() -> Iterator[None]:
        begun.set()
        for _ in range(10):
            clock.advance(2)
            yield
        done.set()

    jobs = Jobs(clock, lambda name: None)
    jobs.start([Job("sliced", 3600.0, work, lambda: 0.001)])
    await begun.wait()
    assert not done.is_set()
    jobs.hurry("sliced")
    await done.wait()
    assert jobs.counts["sliced"].runs == 1
    jobs.stop()


async def test_who_hurries_a_job_again_does_not_put_it_off() -> None:
    rests = [3600.0, 0.0]
    jobs = Jobs(SimClock(), lambda name: None)
    jobs.start([Job("resting", 1.0, lambda: None, lambda: rests[0])])
    del rests[0]
    jobs.hurry("resting")
    timer = jobs._timers["resting"]
    jobs.hurry("resting")
    assert jobs._timers["resting"] is timer and not timer.cancelled()
    jobs.stop()
