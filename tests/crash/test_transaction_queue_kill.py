"""kill -9 at every step of a transaction queue: producer, checker, consumer, HTTP server, broker.

The places are those of gantry.mns.crashplaces, each hit on purpose: the program kills itself there, or waits there
while the server or the broker is killed and started again.  Then random rounds.  After each play: every committed
local transaction has its message consumed at least once, no other message was ever seen, the operation log is empty.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.mns.crashplaces import PLACES, CrashPlace, Fate, Repair
from testkit.mnscrashplay import CrashPlay, go_on, until_killed, until_there
from testkit.mnsservers import PROCESSES, QueueServers
from testkit.patience import HANG_S

# The body that comes by a place: committed, rolled back, or left to a check as one of both.
BODIES = {"AFTER_LOCAL_ROLLBACK": "r", "AFTER_ROLLBACK": "r", "CHECK_FENCED": "n", "CHECK_ROLLED_BACK": "n"}
# Prepared messages that only their end of life removes.
ORPHANS = {"AFTER_PREPARE": 1}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueServers]:
    with QueueServers(tmp_path_factory.mktemp("queues")) as running:
        yield running


def body_of(place: CrashPlace) -> str:
    return BODIES.get(place.name, "l" if place.process == "checker" else "c") + "-1"


def begun(servers: QueueServers, place: CrashPlace, victim: str, folder: Path) -> CrashPlay:
    """A play up to where the process of the place has something to do."""
    play = CrashPlay(servers.endpoint, f"{place.name.replace('_', '-')}-{victim}", folder)
    play.begin()
    if place.process != "producer":
        with play.program("producer") as producer:
            producer.produce(body_of(place))
    return play


def arguments(place: CrashPlace, then: str) -> list[str]:
    more = ["--bodies", body_of(place)] if place.process == "producer" else []
    return ["--place", place.name, "--then", then, *more]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_program_that_dies_at_a_place_is_repaired_as_the_table_says(
    servers: QueueServers, place: CrashPlace, tmp_path: Path
) -> None:
    play = begun(servers, place, "itself", tmp_path)
    with play.process(place.process, *arguments(place, "die")) as program:
        until_killed(program, place.name, play)
    seen_before = play.rows("SELECT body FROM consumed")
    play.settle()
    play.verify([ORPHANS.get(place.name, 0)])
    consumed = play.rows("SELECT body FROM consumed")
    expected = {
        Fate.NEVER_SENT: set(), Fate.NEVER_SEEN: set(), Fate.DELIVERED: {body_of(place)}, Fate.AGAIN: {body_of(place)},
        Fate.AS_DECIDED: {body_of(place)},
    }  # fmt: skip
    assert consumed == expected[place.fate]
    if place.repair is Repair.VISIBILITY:
        again: set[object] = {*play.rows("SELECT MAX(times) FROM consumed")}
        assert again == {2}, f"delivered a second time after {seen_before}"


@pytest.mark.slow
@pytest.mark.parametrize("victim", PROCESSES)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_server_that_dies_at_a_place_loses_nothing_and_shows_nothing(
    servers: QueueServers, place: CrashPlace, victim: str, tmp_path: Path
) -> None:
    play = begun(servers, place, victim, tmp_path)
    with play.process(place.process, *arguments(place, "pause")) as program:
        until_there(program, place.name, play)
        servers.kill(victim)
        go_on(program)  # its next requests find nobody
        servers.start(victim)
        if place.process == "producer":
            assert program.wait(HANG_S) == 0, play.story()
        play.settle()
    play.verify([0, 1])


def test_a_producer_that_goes_on_after_its_check_fails_on_the_fence(servers: QueueServers, tmp_path: Path) -> None:
    play = CrashPlay(servers.endpoint, "late-producer", tmp_path)
    play.begin()
    with play.process("producer", "--bodies", "c-1", "--place", "AFTER_LOG", "--then", "pause") as program:
        until_there(program, "AFTER_LOG", play)
        play.settle()
        go_on(program)
        assert program.wait(HANG_S) == 0, play.story()
    assert play.rows("SELECT state FROM mns_transaction") == {"fence"}
    assert play.rows("SELECT body FROM orders") == set()
    play.verify([0])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 41))])
def test_whatever_dies_whenever_nothing_is_lost_and_nothing_is_shown(
    servers: QueueServers, seed: int, tmp_path: Path
) -> None:
    """Five kills a seed: 200 in all."""
    chance = random.Random(int(os.environ.get("GANTRY_SEED", "0")) * 1000 + seed)
    play = CrashPlay(servers.endpoint, f"random-{seed}", tmp_path)
    play.begin()
    roles = {"producer-a": "producer", "producer-b": "producer", "checker": "checker", "consumer": "consumer"}
    with contextlib.ExitStack() as all_of_them:
        stacks = {name: all_of_them.enter_context(contextlib.ExitStack()) for name in roles}

        def start(name: str, number: int) -> None:
            more = ["--seed", f"{name}{number}", "--pause-max-s", "2.5"] if roles[name] == "producer" else []
            stacks[name].enter_context(play.process(roles[name], *more))

        for name in roles:
            start(name, 0)
        victims = [*roles, *PROCESSES]
        for number in range(1, 6):
            orders = len(play.rows("SELECT body FROM orders"))
            end = time.monotonic() + HANG_S
            while len(play.rows("SELECT body FROM orders")) < orders + 2:  # work goes on between two kills
                assert time.monotonic() < end, f"no work is done\n{play.story()}\n{servers.story()}"
            victim = chance.choice(victims)
            if victim in PROCESSES:
                servers.kill_and_start(victim)
            else:
                stacks[victim].close()
                start(victim, number)
    play.settle()
    attempts = len(play.rows("SELECT body FROM attempts"))
    play.verify(range(attempts + 1))
    assert len(play.rows("SELECT body FROM orders")) >= 10
