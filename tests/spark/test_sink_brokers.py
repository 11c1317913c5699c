"""Brokers that go in the middle of a transactional stream: every line is there once when it has come to its end."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from testkit.frameproxy import HOST, Cut, FrameProxy
from testkit.localcommand import LocalCluster
from testkit.ports import free_port
from testkit.process import GantryProcess
from testkit.sinkdriver import Driver, files, run_to_end
from testkit.sinkkills import LINES, PLACES
from testkit.sinktopic import once, until
from testkit.sources import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PYTHON = str(ROOT / ".venv/bin/python")
FLAGS = (
    "--failover-timers", "fast", "--set", "transactions.check_interval_s=0.5", "--set", "topics.template_queues=2",
)  # fmt: skip


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


def test_masters_that_are_lost_in_the_middle_of_a_stream_cost_no_line(topic: str, tmp_path: Path) -> None:
    chance, pause = random.Random(5), threading.Event()
    expected, losses = files(tmp_path, 40, LINES), 0

    def batches() -> int:
        return len(list(tmp_path.glob("checkpoint/commits/[0-9]*")))

    with LocalCluster(tmp_path / "cluster", *FLAGS) as cluster:
        with Driver(cluster.name_server, topic, tmp_path) as driver:
            driver.begun()
            for number in range(4):
                seen = batches()
                until(lambda seen=seen: batches() > seen or driver.is_over(), "a batch is done")  # type: ignore[misc]
                pause.wait(chance.uniform(0.0, 1.0))
                losses += not driver.is_over()
                master = cluster.do("kill" if number % 2 else "pause", "broker-a", "--master")
                pause.wait(chance.uniform(2.0, 5.0))
                if number % 2 == 0:
                    cluster.do("resume", master)
            assert driver.finished() or driver.was_too_slow(), driver.log()
        assert losses > 1, "the stream was over before anybody was lost"
        run_to_end(cluster.name_server, topic, tmp_path)
        once(cluster.name_server, topic, expected, tmp_path / "checkpoint")
