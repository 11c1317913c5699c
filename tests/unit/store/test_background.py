"""Threads and their stand-in keep the same promises: order, outcomes on the loop, bounded queues, group commit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gantry.errors import StoreError, SyncFailedError
from gantry.store.background import InlineBackground, ThreadBackground, reading
from testkit.patience import HANG_S


class Loop:
    """What an event loop is to the background: a place where callables arrive."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def turn(self) -> None:
        """Run what was posted, waiting for the first."""
        self.posted.get(timeout=HANG_S)()
        while not self.posted.empty():
            self.posted.get()()


class FakeFile:
    """A file whose sync waits to be allowed."""

    path = "fake"

    def __init__(self, fails: bool = False) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.syncs = 0
        self.fails = fails

    def sync_data(self) -> None:
        self.begun.set()
        assert self.may_end.wait(HANG_S)
        self.syncs += 1
        if self.fails:
            raise SyncFailedError("fdatasync fake: Input/output error")


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def threads(loop: Loop) -> Iterator[ThreadBackground]:
    background = ThreadBackground(loop.posted.put)
    yield background
    background.close()


def test_jobs_run_in_order_and_their_outcomes_come_to_the_loop(loop: Loop, threads: ThreadBackground) -> None:
    told: list[int] = []
    ran: list[tuple[int, str]] = []
    for number in range(20):
        threads.housekeeper.submit(
            lambda number=number: ran.append((number, threading.current_thread().name)),
            lambda error, number=number: told.append(number),
        )
    while len(told) < 20:
        loop.turn()
    assert told == list(range(20))
    assert ran == [(number, "gantry-housekeeper") for number in range(20)]


def test_a_store_error_is_an_outcome(loop: Loop, threads: ThreadBackground) -> None:
    outcomes: list[StoreError | None] = []

    def fail() -> None:
        raise StoreError("no")

    threads.housekeeper.submit(fail, outcomes.append)
    threads.housekeeper.submit(lambda: None, outcomes.append)
    threads.housekeeper.drain()
    assert str(outcomes[0]) == "no" and outcomes[1] is None


def test_draining_tells_outcomes_now_and_only_once(loop: Loop, threads: ThreadBackground) -> None:
    outcomes: list[StoreError | None] = []
    threads.housekeeper.submit(lambda: None, outcomes.append)
    threads.housekeeper.drain()
    assert outcomes == [None]
    loop.turn()
    assert outcomes == [None]


def test_what_is_urgent_goes_before_what_waits(threads: ThreadBackground) -> None:
    gate, ran = threading.Event(), []
    threads.housekeeper.submit(lambda: gate.wait(HANG_S) and None)
    threads.housekeeper.submit(partial(ran.append, "later"))
    threads.housekeeper.submit(partial(ran.append, "promise"), first=True)
    gate.set()
    threads.housekeeper.drain()
    assert ran == ["promise", "later"]


def test_a_full_queue_refuses(threads: ThreadBackground) -> None:
    gate = threading.Event()
    threads.housekeeper.submit(lambda: gate.wait(HANG_S) and None)
    taken = 0
    while taken < 5000 and threads.housekeeper.submit(lambda: None):
        taken += 1
    assert 0 < taken < 5000
    gate.set()


def test_writes_that_come_during_a_sync_share_the_next_one(loop: Loop, threads: ThreadBackground) -> None:
    flushed: list[int] = []
    first, second = FakeFile(), FakeFile()
    second.may_end.set()
    threads.flusher.request([first], 10, lambda target, error: flushed.append(target))
    assert first.begun.wait(HANG_S)
    for target in (20, 30, 40):
        threads.flusher.request([second], target, lambda target, error: flushed.append(target))
    first.may_end.set()
    while len(flushed) < 2:
        loop.turn()
    assert flushed == [10, 40] and second.syncs == 1


def test_a_failed_sync_is_told_with_its_target(threads: ThreadBackground) -> None:
    file, outcomes = FakeFile(fails=True), []
    file.may_end.set()
    threads.flusher.request([file], 7, lambda target, error: outcomes.append((target, type(error))))
    threads.flusher.drain()
    assert outcomes == [(7, SyncFailedError)]


def test_closing_runs_what_was_submitted(loop: Loop) -> None:
    background, outcomes = ThreadBackground(loop.posted.put), []
    for _ in range(5):
        background.housekeeper.submit(lambda: None, outcomes.append)
    background.close()
    assert outcomes == [None] * 5
    with pytest.raises(StoreError, match="housekeeper thread has ended"):
        background.housekeeper.submit(lambda: None)


def test_closing_does_not_wait_for_cold_reads_that_wait_nor_tells_of_any(loop: Loop) -> None:
    """Who is told asks for the next one, of a thread that has ended; and a slow disk has a thousand of them to read."""
    background, begun, may_end = ThreadBackground(loop.posted.put), threading.Event(), threading.Event()
    read: list[int] = []

    def first() -> None:
        begun.set()
        assert may_end.wait(HANG_S)

    def ask_again(_: StoreError | None) -> None:
        background.cold_reader.submit(lambda: None)

    background.cold_reader.submit(lambda: None, ask_again)  # told before the close, and not heard of
    background.cold_reader.submit(first, ask_again)
    for number in range(5):
        background.cold_reader.submit(partial(read.append, number), ask_again)
    assert begun.wait(HANG_S)
    threading.Timer(0.05, may_end.set).start()
    background.close()
    assert read == []
    loop.turn()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_a_job_ends_the_thread_and_is_noticed(loop: Loop) -> None:
    background = ThreadBackground(loop.posted.put)
    background.housekeeper.submit(lambda: 1 // 0)
    background.housekeeper.drain()
    with pytest.raises(StoreError, match="housekeeper thread has ended"):
        background.housekeeper.submit(lambda: None)
    background.close()


def test_the_inline_one_does_things_at_once_or_when_stepped() -> None:
    done: list[str] = []
    InlineBackground().housekeeper.submit(partial(done.append, "now"), lambda error: done.append("told"))
    assert done == ["now", "told"]
    stepped = InlineBackground(at_once=False)
    file = FakeFile()
    file.may_end.set()
    stepped.housekeeper.submit(partial(done.append, "later"))
    stepped.flusher.request([file], 1, lambda target, error: done.append(f"flushed {target}"))
    stepped.flusher.request([file], 2, lambda target, error: done.append(f"flushed {target}"))
    assert done == ["now", "told"]
    assert stepped.step()
    assert done[2:] == ["flushed 2", "later"] and not stepped.step()


def test_cold_reads_touch_the_range() -> None:
    file, read = FakeFile(), list[tuple[int, int]]()
    file.pread = lambda count, offset: read.append((count, offset)) or b""  # type: ignore[assignment, func-returns-value]
    reading(file, [(100, 600_000), (10, 20)])()
    assert sum(count for count, _ in read) == 599_910 and read[0][1] == 100
