"""One blocking call at a time, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gantry.guarantee.threads import OneThread, StillBusyError


async def test_a_call_whose_work_is_done_is_never_in_the_way_of_the_next() -> None:
    done: list[int] = []
    one = OneThread("test")
    for number in range(2000):
        await one.run(lambda number=number: done.append(number), lambda: None)  # type: ignore[misc]
    assert len(done) == 2000


async def test_a_call_that_hangs_refuses_the_next_and_one_that_raised_does_not() -> None:
    one, release = OneThread("test"), threading.Event()

    def fails() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await one.run(fails, lambda: None)
    hanging = asyncio.create_task(one.run(lambda: assert_set(release), lambda: None))
    await asyncio.sleep(0)
    with pytest.raises(StillBusyError, match="still waits"):
        await one.run(lambda: None, lambda: None)
    release.set()
    await hanging
    await one.run(lambda: None, lambda: None)


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


async def test_a_call_for_which_the_system_has_no_thread_is_not_in_the_way_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    one = OneThread("test")
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await one.run(lambda: None, lambda: None)
    await one.run(lambda: None, lambda: None)
