"""A folder in use is never removed by another run; of those that failed the newest are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from testkit.runfolder import KEPT, RunFolder, remove_old

HOLDER = """
import sys, pathlib
from testkit.runfolder import RunFolder
folder = RunFolder(pathlib.Path(sys.argv[1]))
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_kept_while_its_run_lives_and_until_younger_failures_push_it_out(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        held = Path(holder.stdout.readline().strip())
        os.utime(held, (0, 0))
        failed = []
        for age in range(KEPT + 2):
            folder = RunFolder(tmp_path)
            folder.end(is_kept=True)
            os.utime(folder.path, (1000 - age, 1000 - age))
            failed.append(folder.path)
        remove_old(tmp_path)
        assert held.is_dir(), "a folder in use was removed"
        assert [path.is_dir() for path in failed] == [True] * KEPT + [False] * 2
        holder.kill()
    remove_old(tmp_path)
    assert not held.is_dir(), "a run that was killed holds its folder for ever"


def test_a_run_that_passed_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.tests.mkdir()
    folder.end(is_kept=False)
    assert not list(tmp_path.iterdir())
