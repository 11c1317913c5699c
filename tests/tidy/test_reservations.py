"""Each pause has its resume, each count goes down again, each flag is taken back: on every way out, and with a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "broker" / "src" / "gantry"
_FOLDER = _ROOT / "tests" / "reservations"
_SPEC = importlib.util.spec_from_file_location("reservations_scan", _FOLDER / "scan.py")
assert _SPEC is not None and _SPEC.loader is not None
scan = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(scan)


def _found() -> dict[str, set[str]]:
    files = [path for path in sorted(_SOURCE.rglob("*.py")) if "leaves" not in path.parts]
    return {taken.key: set(taken.exits) for path in files for taken in scan.taken_in(path, _SOURCE)}


def _listed() -> dict[str, dict[str, str]]:
    listed: dict[str, dict[str, str]] = {}
    for line in (_FOLDER / "list.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            exits = listed.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, test = line.partition(": ")
            exits[name] = test
    return listed


def test_every_reservation_is_listed_with_all_its_ways_out() -> None:
    found, listed = _found(), _listed()
    wrong = {key: sorted(exits) for key, exits in found.items() if key not in listed}
    assert not wrong, f"say in tests/reservations/list.txt by which test each is known to be given back: {wrong}"
    assert not listed.keys() - found.keys(), "these are not in the source any more"
    for key, exits in found.items():
        assert "not" in listed[key] or exits == listed[key].keys(), f"{key} is given back by {sorted(exits)}"


def test_the_test_of_each_way_out_exists() -> None:
    for key, exits in _listed().items():
        for name, test in exits.items():
            path, _, function = test.partition("::")
            assert name == "not" or f"def {function}(" in (_ROOT / path).read_text(), f"{key} {name}: {test}"


def test_a_pause_without_a_resume_and_a_new_way_out_are_found(tmp_path: Path) -> None:
    source = """
class Gate:
    def shut(self):
        self.peer.pause_reading("gate")
        self._count += 1
        self._is_coming = True
        self.store.bring_in(self._came)
    def end(self):
        self._let()
    def late(self):
        self._let()
    def _let(self):
        self._count -= 1
    def _came(self):
        self._is_coming = False
    def safe(self):
        self._busy += 1
        try:
            self.work()
        finally:
            self._busy -= 1
"""
    (tmp_path / "gate.py").write_text(source, encoding="utf-8")
    found = {taken.name: sorted(taken.exits) for taken in scan.taken_in(tmp_path / "gate.py", tmp_path)}
    assert found == {"reading 'gate'": [], "_count": ["end", "late"], "_is_coming": ["_came"]}


def test_what_another_object_has_and_flags_of_any_name_for_something_under_way_are_found(tmp_path: Path) -> None:
    source = """
class Gate:
    def __init__(self):
        self._task = start(self._turn())
    async def enter(self, place):
        place.callers += 1
        await place.lock.acquire()
        place.is_held = True
        self._is_flush_due = True
        self._running = True
    def leave(self, place):
        place.lock.release()
        place.callers -= 1
        place.is_held = False
    async def _turn(self):
        self._is_flush_due = False
    def end(self):
        self._running = False
"""
    (tmp_path / "gate.py").write_text(source, encoding="utf-8")
    found = {taken.name: sorted(taken.exits) for taken in scan.taken_in(tmp_path / "gate.py", tmp_path)}
    left = {name: ["leave"] for name in ("callers", "lock", "is_held")}
    assert found == {**left, "_is_flush_due": ["_turn"], "_running": ["end"]}


def test_what_is_never_given_back_is_found(tmp_path: Path) -> None:
    source = """
class Gate:
    def shut(self):
        self.peer.pause_reading("full")
        self.peer.pause_reading("late")
        self._is_fetching = True
        self._places.acquire()
        self._open += 1
        if self._open > self._open_max:
            self.refused += 1
    def open(self):
        self.peer.resume_reading("full")
    def end(self):
        self._is_closing = True
"""
    (tmp_path / "gate.py").write_text(source, encoding="utf-8")
    found = {taken.name: sorted(taken.exits) for taken in scan.taken_in(tmp_path / "gate.py", tmp_path)}
    lost = {"reading 'late'": [], "_is_fetching": [], "_places": [], "_open": []}
    assert found == {"reading 'full'": ["open"], **lost}
