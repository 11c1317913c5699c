"""The worklist: each key once, never twice at a time, again after a failure and again after a while."""

from __future__ import annotations

import asyncio

from gantry_operator.queue import Worklist


async def running(worklist: Worklist[str], until: asyncio.Event) -> None:
    task = asyncio.create_task(worklist.run())
    async with asyncio.timeout(60):
        await until.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_that_is_added_often_is_worked_on_once() -> None:
    done: list[str] = []
    over = asyncio.Event()

    async def work(key: str) -> float | None:
        done.append(key)
        if key == "last":
            over.set()
        return None

    worklist = Worklist(work, lambda *_: None)
    for _ in range(5):
        worklist.add("a")
    worklist.add("last", 0.01)
    await running(worklist, over)
    assert done == ["a", "last"]


async def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    at_work = most = times = 0
    over = asyncio.Event()

    async def work(key: str) -> float | None:
        nonlocal at_work, most, times
        at_work, times = at_work + 1, times + 1
        most = max(most, at_work)
        if times == 1:
            worklist.add(key)
            await asyncio.sleep(0)
        else:
            over.set()
        at_work -= 1
        return None

    worklist = Worklist(work, lambda *_: None)
    worklist.add("a")
    await running(worklist, over)
    assert (times, most) == (2, 1)


async def test_one_key_does_not_wait_for_another() -> None:
    over = asyncio.Event()

    async def work(key: str) -> float | None:
        if key == "slow":
            await asyncio.Event().wait()
        over.set()
        return None

    worklist = Worklist(work, lambda *_: None)
    worklist.add("slow")
    worklist.add("quick")
    await running(worklist, over)


async def test_any_exception_is_told_and_ends_nothing_and_its_key_comes_again() -> None:
    over, told, done = asyncio.Event(), [], list[str]()

    async def work(key: str) -> float | None:
        done.append(key)
        if done == ["a"]:
            raise RecursionError(key)
        if sorted(done) == ["a", "a", "b"]:
            over.set()
        return None

    worklist = Worklist(work, lambda key, error: told.append((key, repr(error))))
    worklist.add("a")
    worklist.add("b", 0.01)
    await running(worklist, over)
    assert told == [("a", "RecursionError('a')")] and done == ["a", "b", "a"]


async def test_what_was_begun_is_finished_and_nothing_is_begun_after_the_close() -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def work(key: str) -> float | None:
        begun.set()
        await may_end.wait()
        done.append(key)
        return 0.0

    worklist = Worklist(work, lambda *_: None)
    worklist.add("a")
    task = asyncio.create_task(worklist.run())
    async with asyncio.timeout(60):
        await begun.wait()
        worklist.close()
        worklist.add("b")
        may_end.set()
        await task
    assert done == ["a"]


async def test_keys_wait_for_anyone_who_works_and_their_age_is_known() -> None:
    over = asyncio.Event()

    async def work(key: str) -> float | None:
        over.set()
        return None

    worklist = Worklist(work, lambda *_: None)
    assert (worklist.due, worklist.oldest_s) == (0, 0.0)
    worklist.add("a", -5.0)
    worklist.add("later", 60.0)
    assert worklist.due == 1 and worklist.oldest_s >= 5
    await running(worklist, over)
    assert worklist.due == 0
