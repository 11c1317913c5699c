"""A master that was replaced because its disk hangs goes on answering; another life begins when the disk answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from gantry.broker.member_lifecycle import wait_for_disk

TESTS = Path(__file__).parents[1]
PLAY = """
from simulation.groupplay import GroupPlay
play = GroupPlay()
def told(*commands):
    play.lines.clear()
    for command in commands:
        play.do(command)
    print(*play.lines, sep="; ")
    print("lives", play.group.members[0].lives)
told("group members=3 policy=SYNC_MASTER min_in_sync=2", "start", "settle", "send a")
told("disk 0 hangs", "send b", "wait 8", "send c")
print(play.group.members[0].fencing.state().role.value)
told("disk 0 well", "settle", "read 0")
"""


def test_a_master_without_a_mastership_whose_disk_hangs_answers_and_begins_no_other_life() -> None:
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", PLAY]  # a process of its own: what is left of its loops ends with it
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    lines = ran.stdout.splitlines()
    assert len(lines) == 7, ran.stdout + ran.stderr
    assert "c: SEND_OK of member 1" in lines[2] and lines[4] == "none"
    assert lines[1] == lines[3], "the loop would stand still between two lives"
    assert "member 0 gives a b c" in lines[5] and lines[6] != lines[3]


async def test_what_was_written_and_a_job_that_is_under_way_are_waited_for() -> None:
    asked: list[tuple[int, int]] = []

    def is_quiet(end: int, jobs: int) -> bool:
        asked.append((end, jobs))
        return len(asked) > 3

    store = SimpleNamespace(written=SimpleNamespace(offset=70), jobs_ended=4, is_quiet=is_quiet)
    async with asyncio.timeout(5.0):
        await wait_for_disk(store)  # type: ignore[arg-type]
    assert asked == [(70, 4)] * 4
