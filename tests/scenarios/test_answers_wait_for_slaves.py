"""Every change that has to be at slaves before it is answered; see `simulation.answerswait`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from simulation.answerswait import CHANGES, HANDOVER
from testkit import cpubound

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def told() -> list[str]:
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    ran = cpubound.run([sys.executable, "-m", "simulation.answerswait"], environment)
    assert not ran.returncode and not ran.stderr, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_answered_when_in_sync_slaves_have_it_on_their_disks(change: str, told: list[str]) -> None:
    assert f"{change}: waited" in told, [line for line in told if line.startswith(change)]


def test_a_planned_change_keeps_the_newest_offset(told: list[str]) -> None:
    assert f"{HANDOVER}: kept" in told, told
