"""SIGKILL of the whole driver, JVM and all, in the middle of a transactional stream: every line is there once.

The places are hit by name, where a proxy in front of the broker sees the request: while rows are written, around
DECIDE, around END, around "done".  Then at random moments.  The next driver has the checkpoint and nothing else.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from testkit.frameproxy import Cut, FrameProxy
from testkit.sinkdriver import Driver, files, run_to_end
from testkit.sinkkills import LINES, PLACES, kill_at
from testkit.sinktopic import once, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_every_line_is_there_once_wherever_a_commit_is_cut_off(
    proxy: tuple[str, FrameProxy], topic: str, tmp_path: Path
) -> None:
    nameserver, between = proxy
    expected = files(tmp_path, len(PLACES) + 1, LINES)
    for place in PLACES.values():
        kill_at(place, nameserver, topic, tmp_path, between)
    between.wait_for(None)
    run_to_end(nameserver, topic, tmp_path)
    once(nameserver, topic, expected, tmp_path / "checkpoint")


def test_an_answer_that_is_lost_is_asked_for_again(
    proxy: tuple[str, FrameProxy], topic: str, tmp_path: Path
) -> None:
    nameserver, between = proxy
    expected = files(tmp_path, len(PLACES), LINES)
    places = iter(PLACES.values())

    def next_place() -> None:
        place = next(places, None)
        if place is not None:
            between.wait_for(Cut(place.code, place.when, place.nth, next_place, place.marked))

    next_place()
    run_to_end(nameserver, topic, tmp_path)
    assert between.happened == len(PLACES)
    once(nameserver, topic, expected, tmp_path / "checkpoint")


def test_every_line_is_there_once_whenever_the_driver_is_killed(nameserver: str, topic: str, tmp_path: Path) -> None:
    chance = random.Random(11)
    expected = files(tmp_path, 16, LINES)

    def batches(kind: str = "commits") -> int:
        return len(list(tmp_path.glob(f"checkpoint/{kind}/[0-9]*")))

    met = 0
    for number in range(5):
        with Driver(nameserver, topic, tmp_path) as driver:
            driver.begun()
            wanted = batches() + number % 3
            until(lambda wanted=wanted: batches() >= wanted or driver.is_over(), "the batch is finished")  # type: ignore[misc]
            threading.Event().wait(chance.uniform(0.0, 3.0))
            until(lambda: batches("offsets") > batches() or driver.is_over(), "a batch is under way")
            met += not driver.is_over()
            driver.kill()
    assert met, "no kill met a batch"
    run_to_end(nameserver, topic, tmp_path)
    once(nameserver, topic, expected, tmp_path / "checkpoint")
