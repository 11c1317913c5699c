"""Each play of replication/*.txt is told as it stands there; see `simulation.groupplay`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testkit import cpubound

TESTS = Path(__file__).parents[1]
PLAYS = sorted((TESTS / "scenarios" / "replication").glob("*.txt"))


@pytest.fixture(scope="module")
def differences(request: pytest.FixtureRequest) -> str:
    """What is told otherwise now, of the plays that are asked for: one process, its order of sets always the same."""
    chosen = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "simulation.groupplay", *(str(play) for play in PLAYS if play.stem in chosen)]
    ran = cpubound.run(command, environment)
    assert ran.returncode in (0, 1) and not ran.stderr, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.stem)
def test_a_play_is_told_as_it_stands_in_its_file(play: Path, differences: str) -> None:
    told = differences.partition(f"--- {play}\n")[2].partition("\n--- ")[0]
    assert not told, f"--- {play}\n{told}\nPYTHONPATH=tests python -m simulation.groupplay --write {play}"


def test_there_is_a_play_for_each_row_of_the_matrix() -> None:
    matrix = (TESTS.parent / "broker" / "docs" / "failover.md").read_text(encoding="utf-8")
    missing = [play.stem for play in PLAYS if f"`{play.stem}`" not in matrix]
    assert not missing and len(PLAYS) >= 15
