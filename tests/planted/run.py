"""Plant each fault of tests/planted.txt into a copy of the source and demand that its test goes red: `make planted`.

A test suite is only as good as the faults it notices.  Each named test first has to be green on an unchanged copy,
else its red would prove nothing; then it has to fail (pytest's exit code 1; a copy that cannot even be collected is
no proof either).  The compiled leaves are switched off, because the faults are planted in Python.

Arguments choose mutants by a part of their name; without any, all are run.  `--from N` and `--to N` choose by the
number in the list, from 1 on, so that a run that takes an hour may be done in parts, and go on where it was broken off.
Exit code 1 when one survives.  Beside "killed" stands what the test said: look there whether it was the fault that
killed, and not the patience of a test on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutants import ROOT, Mutant, load

_COPIED = ("broker/src", "operator/src", "tests", "pyproject.toml")
# Bytecode comes along: Python sees by itself that it does not belong to the file with the fault.
_LEFT_OUT = shutil.ignore_patterns("*.so", "interop", "node_modules", ".cache")
_TEST_SECONDS = 600
_GREEN, _RED = 0, 1
_KILLED, _NO_END = "killed", "no end after"
_WHY_CHARS = 120


def main(arguments: list[str]) -> int:
    """Run them; how many survived decides the exit code."""
    mutants = chosen(load(), arguments)
    faults: list[str] = []
    green: dict[str, bool] = {}
    for number, mutant in mutants:
        if mutant.test not in green:
            code, output = _run(mutant.test, None)
            green[mutant.test] = code == _GREEN
            if code != _GREEN:
                print(f"not green before anything is planted: {mutant.test}\n{output[-3000:]}")
        begun = time.monotonic()
        verdict = _verdict(mutant) if green[mutant.test] else "not tried: its test is not green without it"
        print(f"{number:>3} {mutant.name:<52} ({time.monotonic() - begun:.1f} s) {verdict}", flush=True)
        if not verdict.startswith(_KILLED):
            faults.append(mutant.name)
    print(f"{len(mutants) - len(faults)} of {len(mutants)} planted faults killed")
    return 1 if faults else 0


def chosen(mutants: list[Mutant], arguments: list[str]) -> list[tuple[int, Mutant]]:
    """Those that are to be run, with their numbers in the list."""
    parser = argparse.ArgumentParser(prog="planted/run.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="parts of names")
    parser.add_argument("--from", dest="first", type=int, default=1, help="from this number on")
    parser.add_argument("--to", dest="last", type=int, default=len(mutants), help="up to this number")
    given = parser.parse_args(arguments)
    return [
        (number, one)
        for number, one in enumerate(mutants, 1)
        if given.first <= number <= given.last and (not given.parts or any(part in one.name for part in given.parts))
    ]


def _verdict(mutant: Mutant) -> str:
    if not mutant.fits():
        return f"does not fit: its text does not stand exactly once in {mutant.file}"
    code, output = _run(mutant.test, mutant)
    if code == _RED:
        return f"{_KILLED}: {_why(output)}"
    if code == _GREEN:
        return f"SURVIVED {mutant.test}"
    return f"no proof, pytest ended with {code}:\n{output[-2000:]}"


def _why(output: str) -> str:
    """What the test said first: a machine that was too slow kills as well, and proves nothing."""
    said = next((line for line in output.splitlines() if line.startswith(("E  ", _NO_END))), "it does not say why")
    return said.removeprefix("E").strip()[:_WHY_CHARS]


def _run(test: str, mutant: Mutant | None) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            source, target = ROOT / name, copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_LEFT_OUT)
            else:
                shutil.copy(source, target)
        if mutant is not None:
            mutant.plant(copy)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{copy / 'broker/src'}{os.pathsep}{copy / 'operator/src'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GANTRY_PURE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_TEST_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            return _RED, f"{_NO_END} {_TEST_SECONDS} s: {error}"
        return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
