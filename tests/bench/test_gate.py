"""The gate over the instructions of the hot ways, and its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import gate
from testkit import hotfigures


def test_no_hot_way_takes_more_instructions_than_its_committed_figure_allows() -> None:
    try:
        found = gate.measure()
        faults = gate.check(found)
    except gate.NoFigures as error:
        pytest.skip(str(error))
    assert not faults, "\n".join(faults)


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Committed figures of two builds of this Python, and of another architecture."""
    path = tmp_path / "hotways.json"
    mine = [{"yardstick": 1000.0, "send": 100.0}, {"yardstick": 800.0, "send": 90.0}]
    there = {"instructions": {hotfigures.key(): mine, "s390x": [{"yardstick": 1.0, "send": 200.0}]}}
    path.write_text(json.dumps(there))
    monkeypatch.setattr(hotfigures, "FIGURES", path)
    return path


@pytest.mark.usefixtures("figures")
def test_figures_are_those_of_the_build_with_the_same_yardstick() -> None:
    assert gate.committed({"yardstick": 1015.0})["send"] == 100.0
    assert gate.committed({"yardstick": 790.0})["send"] == 90.0
    assert gate.check({"yardstick": 1000.0, "send": 110.0}) == []
    assert gate.check({"yardstick": 800.0, "send": 110.0})[0].startswith("send: 110.0 instructions a message, 90.0")


@pytest.mark.usefixtures("figures")
def test_an_unknown_build_has_no_figures_and_says_what_writes_them() -> None:
    with pytest.raises(gate.NoFigures, match=r"yardstick of 1000, 800 and not 900; `make gate WRITE=1`"):
        gate.committed({"yardstick": 900.0})


@pytest.mark.usefixtures("figures")
def test_an_unknown_python_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotfigures, "key", lambda: "sparc")
    with pytest.raises(gate.NoFigures, match="no figures for sparc; `make gate WRITE=1`"):
        gate.committed({"yardstick": 1000.0})


def test_without_valgrind_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(gate.NoFigures, match="missing valgrind and gcc; `requirements/system gate`"):
        gate.measure()


def test_other_builds_move_with_the_one_that_is_measured() -> None:
    other, before = {"yardstick": 800.0, "send": 90.0, "batch": 5.0}, {"yardstick": 1000.0, "send": 100.0}
    assert gate.moved(other, before, {"yardstick": 1001.0, "send": 50.0}) == {"send": 45.0}
    assert gate.moved(other, {}, {"yardstick": 1001.0, "send": 50.0}) == {}
    new = {"yardstick": 1001.0, "send": 100.0, "pop": 40.0}
    assert gate.moved(other, before, new) == {"send": 90.0, "pop": 36.0}, (
        "as the other ways are dearer or cheaper there"
    )
