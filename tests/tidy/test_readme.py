"""The READMEs say what the code does, and the Chinese one says what the English one says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gantry.broker.settings.config import KEYS
from gantry.wire.codes import UNSUPPORTED
from interop import conformance
from testkit import chartreadme, configuration, readme
from testkit.sources import ROOT, tracked_files

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^    (\S.*?)(?:\s+#.*)?$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+)\)")


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_page_of_requests_is_what_the_code_says() -> None:
    text = _text(readme.PAGE)
    assert readme.rendered(text) == text, f"{readme.PAGE} is behind the code; make readme"
    assert text.count("<!-- generated: ") == 2


def test_a_readme_is_read_in_one_sitting() -> None:
    sizes = {name: len(_text(name)) for name in readme.READMES}
    assert max(sizes.values()) <= _README_CHARS_MAX, f"move what is longer to a document of its folder: {sizes}"


def test_the_table_of_apaches_tests_is_what_their_file_says() -> None:
    text = conformance.DOCUMENT.read_text(encoding="utf-8")
    assert conformance.rendered(text) == text, "broker/docs/compatibility.md is behind conformance.txt; make readme"


def test_the_page_of_configuration_keys_is_what_the_code_says() -> None:
    text = configuration.PAGE.read_text(encoding="utf-8")
    assert configuration.rendered(text) == text, "broker/docs/configuration.md is behind the code; make readme"
    assert all(f"| `{key.rpartition('.')[2]}` | " in text for key in KEYS)


@pytest.mark.parametrize("chart", chartreadme.CHARTS, ids=lambda chart: chart.name)
def test_the_readme_of_a_chart_has_every_value_with_what_it_does(chart: Path) -> None:
    assert (chart / "README.md").read_text() == chartreadme.rendered(chart), "make readme"
    assert (chart / "Chart.yaml").read_text() == chartreadme.with_icon(chart), "make readme"
    made = list(chartreadme.values((chart / "values.yaml").read_text()))
    assert len(made) > 10 and not [each.path for each in made if not each.description.endswith(".")]
    for target in _LINK.findall((chart / "README.md").read_text()):
        assert (chart / target).exists(), target


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


_SOURCE = "broker/src/gantry/"
_README_CHARS_MAX = 10 * 1024
_SAID_BY_THEIR_PACKAGE = {"leaves/_fast", "consume/sql92"}


@pytest.mark.parametrize("name", readme.READMES)
def test_a_make_target_in_a_document_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", _text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z][a-z0-9-]*)", _text(name), re.MULTILINE)) <= targets


def test_the_architecture_says_a_sentence_about_each_package_and_about_no_other() -> None:
    tree = _text("ARCHITECTURE.md").partition("\nbroker/   ")[2].partition("\noperator/ ")[0]
    said, outer = [], ""
    for depth, name in re.findall(r"^( {2,4})(\w+)/ ", tree, re.MULTILINE):
        outer = name if len(depth) == 2 else outer
        said.append(name if len(depth) == 2 else f"{outer}/{name}")
    below = [Path(path).parent.as_posix() for path in tracked_files() if path.endswith("/__init__.py")]
    here = {folder.removeprefix(_SOURCE) for folder in below if folder.startswith(_SOURCE)}
    assert set(said) == here - _SAID_BY_THEIR_PACKAGE and len(said) == len(set(said))


