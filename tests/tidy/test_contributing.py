"""What a contributor is told is true: paths and targets exist, the list of targets is readable, hooks call make."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib

import pytest

from testkit.sources import ROOT, tracked_files

GUIDES = {"CONTRIBUTING.md": 6_000, "tests/README.md": 5_000}  # and their longest size, in bytes
_TARGET = re.compile(r"^([a-z0-9-]+):.*  ## ", re.MULTILINE)
_PATH = re.compile(r"`((?:broker|operator|spark|tests|testkit|requirements|\.ci|\.devcontainer)/[\w./-]+)`")
# Parts of the product that are no package of gantry, and what only tests and the demonstration have.
_OTHER_ROOMS = {"operator", "spark", "demo", "testkit"}
_SHOWN_BY_THEIR_TWIN = {"leaves/_fast"}


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _targets() -> set[str]:
    return set(_TARGET.findall(_text("Makefile")))


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_short(guide: str) -> None:
    assert len(_text(guide).encode()) <= GUIDES[guide]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_path_in_a_guide_exists(guide: str) -> None:
    named = _PATH.findall(_text(guide))
    linked = re.findall(r"\]\(([^)#:]+)\)", _text(guide))
    assert named and linked
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "tests" / path).exists() or path == "tests/unit/PACKAGE", path
    for path in linked:
        assert ((ROOT / guide).parent / path).exists(), path


@pytest.mark.parametrize("guide", GUIDES)
def test_a_make_target_in_a_guide_exists(guide: str) -> None:
    named = set(re.findall(r"(?:`|^    )make ([a-z][a-z0-9-]*)", _text(guide), re.MULTILINE))
    assert named and named <= _targets()


def test_every_level_of_tests_is_in_the_table() -> None:
    folders = {path.split("/")[1] for path in tracked_files() if re.match(r"tests/\w+/(?:.+/)?test_\w+\.py$", path)}
    rows = set(re.findall(r"^\| (\w+) \| `tests/", _text("tests/README.md"), re.MULTILINE))
    assert rows == folders | {"bare", "bench", "planted"}


def test_the_list_of_targets_fits_a_terminal_and_has_every_target_under_a_heading() -> None:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(["make", "help"], cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    printed = done.stdout
    headings = re.findall(r"(?m)^(\w+)$", printed)
    assert headings == ["Begin", "Change", "Test", "Kubernetes", "Spark", "Measure", "Generate"]
    listed = re.findall(r"(?m)^  make ([a-z0-9-]+) +\S", printed)
    assert sorted(listed) == sorted(_targets()) and len(set(listed)) == len(listed)
    assert max(map(len, printed.splitlines())) <= 110


def test_the_development_container_installs_by_a_make_target() -> None:
    container = json.loads(_text(".devcontainer/devcontainer.json"))
    program, target = container["postCreateCommand"].split(" ")
    assert program == "make" and target in _targets()


def test_the_development_container_has_a_declared_python_and_the_debian_of_the_images() -> None:
    image = json.loads(_text(".devcontainer/devcontainer.json"))["image"]
    (minor, debian) = re.fullmatch(r"\S+/python:3\.(\d+)-(\w+)", image).groups()  # type: ignore[union-attr]
    (of_the_images,) = re.findall(r"(?m)^ARG BASE=\S+-(\w+)$", _text("Dockerfile"))
    project = tomllib.loads(_text("broker/pyproject.toml"))["project"]
    assert f"Programming Language :: Python :: 3.{minor}" in project["classifiers"]
    assert debian == of_the_images


def test_the_hooks_of_a_commit_run_what_make_runs() -> None:
    entries = re.findall(r"(?m)^ +entry: (.+)$", _text(".pre-commit-config.yaml"))
    assert entries == ["make --silent lint types", ".venv/bin/python tests/testkit/commitmessage.py"]


def test_the_folders_of_unit_tests_are_the_packages_of_gantry() -> None:
    below = "broker/src/gantry/"
    packages = {path.removeprefix(below).rpartition("/")[0] for path in tracked_files() if path.startswith(below)}
    tested = {path.removeprefix("tests/unit/").rpartition("/")[0] for path in tracked_files() if "tests/unit/" in path}
    assert tested - _OTHER_ROOMS == packages - _SHOWN_BY_THEIR_TWIN - {""}
