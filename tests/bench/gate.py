"""`make gate`: instructions for each message of the hot ways, by callgrind, held against the committed figures.

    python tests/bench/gate.py [--write] [--only send,batch,...]

No time is measured, so the machine may be as busy as it likes: the same code runs the same instructions, within a
percent.  The ways, and what makes them repeat, are in tests/testkit/hotways.py; this file runs itself under valgrind,
which counts between `collect` and `collect` and writes a file for each way.

Figures hold for an architecture, a Python and its leaves.  Builds of one Python (a distribution's, pyenv's) differ by
more than the margin, so the run counts a yardstick as well: work that no change of this project changes.  The figures
of the build with the same yardstick, within YARDSTICK_MARGIN, are those to compare with.

Exit code 1: a way costs too much.  2: there is nothing to measure with, or to compare with.

--write puts the measured figures into the place of the committed ones.  Those of other builds, Pythons and
architectures are moved by the same factor, way by way, which is right within some percent: what wrote them need not be
at hand.  A new way gets there what it takes here, times what the other ways take more or less there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_TESTS = _HERE.parent
sys.path.insert(0, str(_TESTS))

from testkit import hotfigures  # noqa: E402
from testkit.hotways import WAYS, Ground, Piece  # noqa: E402
from testkit.stillworld import still_broker  # noqa: E402

TOO_MUCH, NO_FIGURES = 1, 2
YARDSTICK_MARGIN = 0.02
_YARDSTICK = "yardstick"
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "GANTRY_PURE")
_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (\S+) (\d+)$", re.MULTILINE)
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)
_SECONDS_MAX = 600  # a stuck run ends; on a quiet machine it takes ten


class NoFigures(Exception):  # noqa: N818  nothing is wrong
    """There is nothing to measure with, or to compare with; the text says what to do."""


def why_not() -> str:
    """Return what is missing for a measurement; an empty text when nothing is."""
    missing = [tool for tool in ("valgrind", "gcc") if shutil.which(tool) is None]
    return f"missing {' and '.join(missing)}; `requirements/system gate`" if missing else ""


def measure(names: Iterable[str] = ()) -> dict[str, float]:
    """Return instructions for each message by way, and of the yardstick; NoFigures without valgrind."""
    reason = why_not()
    if reason:
        raise NoFigures(reason)
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "callgrind_marks.so"
        include = sysconfig.get_path("include")
        compiler = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", f"-I{include}", "-o", str(marks)]
        subprocess.run([*compiler, str(_HERE / "callgrind_marks.c")], check=True)
        command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
        command += [f"--callgrind-out-file={folder}/counted", sys.executable, __file__, "--replay", folder]
        # Of the environment only what cannot change what is run: no debugging, no coverage, no keys of a broker.
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        env |= {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([folder, str(_TESTS)])}
        command += ["--only", ",".join(names)] if names else []
        subprocess.run(command, check=True, env=env, timeout=_SECONDS_MAX)
        return dict(_counted(path.read_text()) for path in Path(folder).glob("counted.*"))


def _counted(text: str) -> tuple[str, float]:
    trigger, total = _TRIGGER.search(text), _TOTAL.search(text)
    if trigger is None or total is None:
        raise SystemExit(f"callgrind wrote no totals: {text[:400]}")
    return trigger[1], round(int(total[1]) / int(trigger[2]), 1)


def replay(folder: Path, names: Iterable[str]) -> None:
    """Under valgrind: replay and count."""
    marks: Any = importlib.import_module("callgrind_marks")
    assert marks.is_there(), "not under valgrind"

    def count(piece: Piece) -> None:
        marks.collect()
        piece.run()
        marks.collect()

    with hotfigures.no_collection(), still_broker(folder / "data") as still:
        ground = Ground(still)
        marks.instrument()
        _standard_work()
        count(Piece(_standard_work, 1))
        marks.dump(f"{_YARDSTICK} 1")
        for way in WAYS:
            if not names or way.name in names:
                messages = hotfigures.measured(way, ground, count)
                marks.dump(f"{way.name} {messages}")
        ground.stop()


def calls() -> dict[str, dict[str, float]]:
    """Return the calls for each message by way, for the leaves of this process."""
    with tempfile.TemporaryDirectory() as folder, still_broker(Path(folder)) as still:
        ground = Ground(still)
        found = {way.name: hotfigures.calls(way, ground) for way in WAYS}
        ground.stop()
    return {hotfigures.leaves(): found}


class _Item:
    """A part of the yardstick."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = f"{number:08d}"

    def told(self, seen: dict[str, int]) -> bytes:
        seen[self.text] = seen.get(self.text, 0) + self.number
        return self.text.encode()


def _standard_work() -> int:
    """Do what interpreters spend their time with, and what no change of the product changes."""
    seen: dict[str, int] = {}
    parts: list[bytes] = []
    for number in range(400):
        item = _Item(number % 50)
        try:
            parts.append(item.told(seen))
            if number % 10 == 0:
                parts = [b"".join(parts)]
                json.loads(json.dumps(seen))
        finally:
            seen.pop("absent", None)
    return sum(map(len, parts))


def committed(found: Mapping[str, float]) -> dict[str, float]:
    """Return the figures for this machine, Python and build; NoFigures when there are none."""
    key, yardstick = hotfigures.key(), found[_YARDSTICK]
    builds = hotfigures.load()["instructions"].get(key, [])
    near = [one for one in builds if abs(one[_YARDSTICK] / yardstick - 1) <= YARDSTICK_MARGIN]
    if not near:
        others = ", ".join(f"{one[_YARDSTICK]:.0f}" for one in builds)
        build = f": of other builds, with a yardstick of {others} and not {yardstick:.0f}" if builds else ""
        raise NoFigures(f"no figures for {key}{build}; `make gate WRITE=1`, on good code, writes them")
    best: dict[str, float] = min(near, key=lambda one: abs(one[_YARDSTICK] / yardstick - 1))
    return best


def check(found: Mapping[str, float]) -> list[str]:
    """Return a line for each way that costs too much; NoFigures when nothing is committed for this build."""
    before = committed(found)
    ways = {name: figure for name, figure in found.items() if name != _YARDSTICK}
    return hotfigures.too_much(ways, before, "instructions")


def write(found: dict[str, float]) -> None:
    """Write the figures of this build, and move those of the others by what has changed here."""
    figures = hotfigures.load()
    mine = figures["instructions"].setdefault(hotfigures.key(), [])
    is_mine = [one for one in mine if abs(one[_YARDSTICK] / found[_YARDSTICK] - 1) <= YARDSTICK_MARGIN]
    before = is_mine[0] if is_mine else {}
    for one in (one for builds in figures["instructions"].values() for one in builds):
        one.update(moved(one, before, found))
    mine[:] = [one for one in mine if one not in is_mine]
    mine.append({name: found[name] for name in [_YARDSTICK, *(way.name for way in WAYS)]})
    for pure in ("", "1"):
        env = {**os.environ, "GANTRY_PURE": pure}
        told = subprocess.run([sys.executable, __file__, "--calls"], check=True, env=env, stdout=subprocess.PIPE).stdout
        figures["calls"].update(json.loads(told))
    hotfigures.FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


def moved(other: Mapping[str, float], before: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of another build after ways have changed here from `before` to `found`."""
    ways = [name for name in other if name != _YARDSTICK and name in before and name in found]
    after = {name: round(other[name] * found[name] / before[name], 1) for name in ways}
    if ways:
        factor = statistics.median([other[name] / before[name] for name in ways])
        new = [name for name in found if name != _YARDSTICK and name not in other]
        after |= {name: round(found[name] * factor, 1) for name in new}
    return after


def table(found: Mapping[str, float], before: Mapping[str, float]) -> str:
    """The figures beside the committed ones."""
    lines = []
    for way in WAYS:
        if way.name in found:
            is_known = way.name in before
            change = f"{100 * (found[way.name] / before[way.name] - 1):+6.1f} %" if is_known else "     new"
            lines.append(f"{way.name:24}{found[way.name]:12.0f}  {change}  {way.what}")
    return "\n".join(lines)


def main() -> int:
    """Measure, and check or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="commit to what is measured now")
    parser.add_argument("--only", default="", help="names of ways")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    if options.replay is not None:
        replay(options.replay, names)
        return 0
    if options.calls:
        print(json.dumps(calls()))
        return 0
    try:
        found = measure(names)
        if options.write:
            write(found)
        before = committed(found)
    except NoFigures as error:
        print(error, file=sys.stderr)
        return NO_FIGURES
    print(table(found, before))
    faults = check(found)
    print("\n".join(faults), file=sys.stderr)
    return TOO_MUCH if faults else 0


if __name__ == "__main__":
    sys.exit(main())
