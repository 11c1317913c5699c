"""The walks of the documents lead through code that is there: each hop is a file and a name that it defines."""

from __future__ import annotations

import re
from functools import cache

import pytest

from testkit.sources import ROOT, tracked_files

WALKS = {"ARCHITECTURE.md": 3, "broker/docs/store.md": 1}  # and how many of them a document has
_HOPS_MAX = 10
_SOURCES = ("broker/src/gantry/", "operator/src/gantry_operator/", "spark/src/pyspark_gantrymq/")
_PLACE = re.compile(r"`([\w/]+\.py)` `(\w+)`")
_WALK = re.compile(r"^\*\*Walk\b.*\n\n((?:\d+\. .*\n(?:   .*\n)*)+)", re.MULTILINE)
DOCUMENTS = [path for path in tracked_files() if path.endswith(".md") and path != "CHANGELOG.md"]


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def _defined(path: str) -> set[str]:
    """The functions and classes of a file."""
    return set(re.findall(r"^ *(?:async def|def|class) (\w+)", _text(path), re.MULTILINE))


@cache
def _places(document: str) -> tuple[tuple[str, str], ...]:
    return tuple(_PLACE.findall(_text(document)))


def _is_there(path: str, name: str) -> bool:
    files = [source + path for source in _SOURCES if source + path in tracked_files()]
    return any(name in _defined(file) for file in files)


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if _places(path)])
def test_a_function_that_a_document_names_is_in_the_file_that_it_names(document: str) -> None:
    assert not [f"{path} {name}" for path, name in _places(document) if not _is_there(path, name)]


@pytest.mark.parametrize("document", WALKS)
def test_a_walk_has_at_most_ten_hops_and_each_begins_at_a_function(document: str) -> None:
    walks = _WALK.findall(_text(document))
    assert len(walks) == WALKS[document]
    for walk in walks:
        hops = re.findall(r"^\d+\. (.*)$", walk, re.MULTILINE)
        assert 1 < len(hops) <= _HOPS_MAX
        assert not [hop for hop in hops if not _PLACE.match(hop)]
