"""Plant each fault of tests/planted.txt into a copy of the source and demand that its test goes red: `make planted`.

A test suite is only as good as the faults it notices.  Each named test first has to be green on an unchanged copy,
else its red would prove nothing; then it has to fail (pytest's exit code 1; a copy that cannot even be collected is
no proof either).  The compiled leaves are switched off, because the faults are planted in Python.

Arguments choose mutants by a part of their name; without any, all are run.  `--from N` and `--to N` choose by the
number in the list, from 1 on, so that a run that takes an hour may be done in parts, and go on where it was broken off.
`--workers N` runs so many at a time, each in a copy of its own: half of such a test is starting and waiting.
Tests in tests/spark run in Spark's environment (`make spark-env`), all others in that of this process.
Exit code 1 when one survives.  Beside "killed" stands what the test said: look there whether it was the fault that
killed, and not the patience of a test on a busy machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutants import ROOT, Mutant, load

_COPIED = ("broker/src", "operator/src", "spark/src", "spark/samples", "tests", "pyproject.toml")
# Bytecode comes along: Python sees by itself that it does not belong to the file with the fault.
_LEFT_OUT = shutil.ignore_patterns("*.so", "node_modules", ".cache")
_TEST_SECONDS = 600
_SPARK_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
_GREEN, _RED = 0, 1
_KILLED, _NO_END = "killed", "no end after"
_WHY_CHARS = 120


def main(arguments: list[str]) -> int:
    """Run them; how many survived decides the exit code."""
    mutants, workers = chosen(load(), arguments)
    by_test = itertools.groupby(sorted(mutants, key=lambda each: each[1].test), key=lambda each: each[1].test)
    groups = [list(group) for _, group in by_test]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder, ThreadPoolExecutor(workers) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(workers):
            copies.put(_copied(Path(folder) / str(number)))
        survived = [name for names in pool.map(lambda group: _try(group, copies), groups) for name in names]
    print(f"{len(mutants) - len(survived)} of {len(mutants)} planted faults killed")
    for name in survived:
        print(f"not killed: {name}")
    return 1 if survived else 0


def _try(group: list[tuple[int, Mutant]], copies: queue.SimpleQueue[Path]) -> list[str]:
    """Plant the faults of one test in a copy that no other worker uses; return the names of those that survived."""
    copy, test, survived = copies.get(), group[0][1].test, []
    try:
        code, output = _run(test, copy)
        if code != _GREEN:
            print(f"not green before anything is planted: {test}\n{output[-3000:]}", flush=True)
        for number, mutant in group:
            begun = time.monotonic()
            verdict = _verdict(mutant, copy) if code == _GREEN else "not tried: its test is not green without it"
            print(f"{number:>3} {mutant.name:<52} ({time.monotonic() - begun:.1f} s) {verdict}", flush=True)
            if not verdict.startswith(_KILLED):
                survived.append(mutant.name)
    finally:
        copies.put(copy)
    return survived


def chosen(mutants: list[Mutant], arguments: list[str]) -> tuple[list[tuple[int, Mutant]], int]:
    """Those that are to be run, with their numbers in the list, and how many at a time."""
    parser = argparse.ArgumentParser(prog="planted/run.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="parts of names")
    parser.add_argument("--from", dest="first", type=int, default=1, help="from this number on")
    parser.add_argument("--to", dest="last", type=int, default=len(mutants), help="up to this number")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="so many at a time")
    given = parser.parse_args(arguments)
    wanted = [
        (number, one)
        for number, one in enumerate(mutants, 1)
        if given.first <= number <= given.last and (not given.parts or any(part in one.name for part in given.parts))
    ]
    return wanted, max(given.workers, 1)


def _verdict(mutant: Mutant, copy: Path) -> str:
    if not mutant.fits():
        return f"does not fit: its text does not stand exactly once in {mutant.file}"
    mutant.plant(copy)
    try:
        code, output = _run(mutant.test, copy)
    finally:
        shutil.copy(ROOT / mutant.file, copy / mutant.file)
    if code == _RED:
        return f"{_KILLED}: {_why(output)}"
    if code == _GREEN:
        return f"SURVIVED {mutant.test}"
    return f"no proof, pytest ended with {code}:\n{output[-2000:]}"


def _why(output: str) -> str:
    """What the test said first: a machine that was too slow kills as well, and proves nothing."""
    said = next((line for line in output.splitlines() if line.startswith(("E  ", _NO_END))), "it does not say why")
    return said.removeprefix("E").strip()[:_WHY_CHARS]


def _copied(copy: Path) -> Path:
    """A copy of the source and its tests, in which faults are planted."""
    for name in _COPIED:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, target)
    (copy / ".venv").symlink_to(ROOT / ".venv")  # tests of Spark start brokers with it
    (copy / ".cache").symlink_to(ROOT / ".cache")  # other people's clients, which `make tools` fetched
    return copy


def _run(test: str, copy: Path) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(copy / name) for name in _COPIED if name.endswith("/src")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GANTRY_PURE": "1",
        "GANTRY_TEST_HANG_S": "60",  # many faults show as something that never comes
    }
    python = str(_SPARK_PYTHON) if test.startswith("tests/spark/") else sys.executable
    command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_TEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        return _RED, f"{_NO_END} {_TEST_SECONDS} s: {error}"
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
