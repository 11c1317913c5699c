"""SIGKILL of the whole driver, JVM and all, in the middle of a transactional stream: every line is there once.

The places are hit by name, where a proxy in front of the broker sees the request: while rows are written, around
DECIDE, around END, around "done".  The next driver has the checkpoint and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.frameproxy import Cut, FrameProxy
from testkit.sinkdriver import files, run_to_end
from testkit.sinkkills import LINES, PLACES, kill_at
from testkit.sinktopic import once

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
