"""A job that needs old records goes on when they are there, and its owner's calls do not double it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.store.coldsteps import ColdSteps, Places


class Reader:
    """A store whose records are all cold; `deliver` is the cold reader's answer."""

    def __init__(self, at_once: bool = False) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.asked: list[Places] = []
        self.at_once = at_once
        self.is_closed = False
        self.reader = SimpleNamespace(is_cold=lambda places: places[0][0] < 100)

    def bring_in(self, places: Places, done: Callable[[], None]) -> None:
        self.asked.append(places)
        if self.at_once:
            done()
        else:
            self.waiting.append(done)

    def deliver(self) -> None:
        self.waiting.pop()()


def job(seen: list[int], places: list[Places]) -> Iterator[Places]:
    for number, one in enumerate(places):
        yield one
        seen.append(number)


def made(store: Any, places: list[Places]) -> tuple[ColdSteps, list[int]]:
    seen: list[int] = []
    return ColdSteps(store, lambda: job(seen, places)), seen


def test_it_goes_on_by_itself_batch_after_batch() -> None:
    store = Reader()
    steps, seen = made(store, [[(1, 10)], [(2, 10), (200, 10)], [(3, 10)]])
    assert len(list(steps.go_on())) == 1 and seen == []
    assert list(steps.go_on()) == [] and len(store.waiting) == 1, "it is not asked for twice"
    for count in (1, 2, 3):
        store.deliver()
        assert seen == list(range(count))
    assert store.waiting == [] and store.asked == [[(1, 10)], [(2, 10)], [(3, 10)]]
    assert list(steps.go_on()) and seen == [0, 1, 2] and len(store.waiting) == 1, "and begins once more"


def test_warm_slices_behind_a_cold_one_give_way_by_the_cold_reader() -> None:
    store = Reader()
    steps, seen = made(store, [[(1, 10)], [(200, 10)], []])
    list(steps.go_on())
    for count in (1, 2, 3):
        store.deliver()
        assert seen == list(range(count))
    assert store.asked == [[(1, 10)], [], []] and store.waiting == []


def test_warm_slices_run_in_the_calls_of_the_owner() -> None:
    store = Reader()
    steps, seen = made(store, [[(200, 10)], []])
    assert len(list(steps.go_on())) == 3 and seen == [0, 1] and store.asked == []


def test_a_full_queue_of_the_cold_reader_leads_to_no_recursion() -> None:
    steps, seen = made(Reader(at_once=True), [[(1, 10)]] * 5000)
    assert len(list(steps.go_on())) == 5001 and len(seen) == 5000


def test_a_job_that_fails_begins_again_at_the_next_call() -> None:
    store, tries = Reader(), iter((True, False))

    def begin() -> Iterator[Places]:
        yield [(1, 10)]
        if next(tries):
            raise ZeroDivisionError
        seen.append(1)

    seen: list[int] = []
    steps = ColdSteps(store, begin)  # type: ignore[arg-type]
    list(steps.go_on())
    with pytest.raises(ZeroDivisionError):
        store.deliver()
    list(steps.go_on())
    store.deliver()
    assert seen == [1]


def test_a_closed_store_ends_the_job() -> None:
    store = Reader()
    steps, seen = made(store, [[(1, 10)], [(2, 10)]])
    list(steps.go_on())
    store.is_closed = True
    store.deliver()
    assert seen == [] and store.waiting == []
