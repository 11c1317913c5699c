"""Brokers that go in the middle of a transactional stream: every line is there once when it has come to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.frameproxy import HOST, Cut, FrameProxy
from testkit.ports import free_port
from testkit.process import GantryProcess
from testkit.sinkdriver import files, run_to_end
from testkit.sinkkills import LINES, PLACES
from testkit.sinktopic import once
from testkit.sources import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PYTHON = str(ROOT / ".venv/bin/python")


def test_a_broker_that_is_killed_anywhere_in_a_commit_is_waited_for(topic: str, tmp_path: Path) -> None:
    config = {
        "network.advertise": HOST,
        "network.port": str(free_port()),
        "standalone.nameserver_port": str(free_port()),
        "transactions.check_interval_s": "0.5",
    }
    expected = files(tmp_path, len(PLACES) + 1, LINES)
    lives = [GantryProcess(tmp_path / "data", config, python=PYTHON)]
    nameserver = "{}:{}".format(*lives[0].addresses["nameserver"])
    places = iter(PLACES.values())
    try:
        with FrameProxy(lives[0].broker) as between:

            def next_place() -> None:
                place = next(places, None)
                if place is not None:
                    between.wait_for(Cut(place.code, place.when, place.nth, kill_and_start, place.marked))

            def kill_and_start() -> None:
                lives[-1].kill()
                lives.append(GantryProcess(tmp_path / "data", config, python=PYTHON))
                next_place()

            next_place()
            run_to_end(nameserver, topic, tmp_path)
            assert between.happened == len(PLACES)
            once(nameserver, topic, expected, tmp_path / "checkpoint")
    finally:
        for life in lives:
            life.__exit__(None, None, None)
