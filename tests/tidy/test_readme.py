"""The READMEs say what the code does, and the Chinese one says what the English one says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gantry.wire.codes import UNSUPPORTED
from testkit import readme
from testkit.sources import ROOT, tracked_files

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^    (\S.*?)(?:\s+#.*)?$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+)\)")


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", readme.READMES)
def test_the_generated_tables_are_what_the_code_says(name: str) -> None:
    text = _text(name)
    assert readme.rendered(name, text) == text, f"{name} is behind the code; make readme"
    assert text.count("<!-- generated: ") == 2


def test_a_code_that_is_served_is_not_called_unsupported() -> None:
    served = {code for server, code in readme.handlers() if server == "broker"}
    assert not served & UNSUPPORTED.keys()


@pytest.mark.parametrize("name", readme.READMES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in _LINK.findall(_text(name)):
        assert (ROOT / target).exists(), f"{name}: {target}"


def _shape(name: str) -> list[tuple[int, int]]:
    """For each heading its level, and how many tables' rows stand below it."""
    shape: list[tuple[int, int]] = []
    for line in _FENCE.sub("", _text(name)).splitlines():
        if line.startswith("#"):
            shape.append((len(line) - len(line.lstrip("#")), 0))
        elif line.startswith("|"):
            shape[-1] = (shape[-1][0], shape[-1][1] + 1)
    return shape


def test_the_chinese_readme_has_the_same_headings_and_tables() -> None:
    assert _shape("README.zh-CN.md") == _shape("README.md")


def test_the_chinese_readme_has_the_same_commands_and_programs() -> None:
    english, chinese = _text("README.md"), _text("README.zh-CN.md")
    assert _COMMAND.findall(_FENCE.sub("", chinese)) == _COMMAND.findall(_FENCE.sub("", english))
    programs = [block for block in _FENCE.findall(english) if block[0] != "mermaid"]
    assert [block for block in _FENCE.findall(chinese) if block[0] != "mermaid"] == programs


@pytest.mark.parametrize("name", readme.READMES)
def test_a_make_target_in_a_document_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", _text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", _text(name), re.MULTILINE)) <= targets


def test_the_architecture_lists_the_packages_that_exist_and_marks_the_others() -> None:
    tree = _text("ARCHITECTURE.md").partition("```\n")[2].partition("\n```")[0]
    listed = re.findall(r"^  (\w+)/\s+(\(later\))?", tree, re.MULTILINE)
    here = {
        Path(path).parts[3] for path in tracked_files() if path.startswith("broker/src/gantry/") and path.count("/") > 3
    }
    assert {name for name, later in listed if not later} - {"api"} == here
    assert not {name for name, later in listed if later} & here
