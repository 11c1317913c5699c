"""Each document has its place in the documentation site, and its links are those of the repository.

The site itself is built by tests/scenarios/test_docsite.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import gantry.client
import pyspark_gantrymq
from testkit.docsite import docstrings, navigation
from testkit.docsite.assemble import Assembly, BrokenLinkError
from testkit.sources import ROOT, tracked_files


def test_each_document_has_one_place_in_the_navigation() -> None:
    placed = Counter(navigation.documents())
    written = {path for path in tracked_files() if path.endswith(".md")}
    where = "tests/testkit/docsite/navigation.py"
    assert not written - set(placed), f"put these into a section of {where}: {sorted(written - set(placed))}"
    assert not set(placed) - written, f"take these out of {where}: {sorted(set(placed) - written)}"
    assert not {path for path, times in placed.items() if times > 1}


def test_each_public_name_has_its_place_in_the_reference() -> None:
    names = [name for group in navigation.CLIENT.values() for name in group]
    assert sorted(names) == sorted(gantry.client.__all__), "navigation.CLIENT and gantry.client.__all__ differ"
    assert sorted(navigation.SPARK) == sorted(pyspark_gantrymq.__all__)


def test_no_link_of_a_document_leads_nowhere(tmp_path: Path) -> None:
    assembly = Assembly(tmp_path)
    for path in navigation.documents():
        assembly.rewritten(path, (ROOT / path).read_text(encoding="utf-8"))


def _rewritten(text: str) -> str:
    return Assembly(Path("unused")).rewritten("broker/docs/store.md", text)


def test_links_lead_to_pages_of_the_site() -> None:
    assert _rewritten("[a](client.md#send) [b](https://x.org)") == "[a](client.md#send) [b](https://x.org)\n"
    assert _rewritten("[home](../../README.md)") == "[home](../../index.md)\n"
    assert _rewritten("[code](../src/gantry/errors.py)") == "[code](../../files/broker/src/gantry/errors.py.md)\n"
    assert _rewritten("see `operator.md`") == "see [`operator.md`](../../operator/docs/operator.md)\n"
    assert _rewritten("this is `store.md`, and `nothing.md`") == "this is `store.md`, and `nothing.md`\n"
    assert _rewritten("```frame json\n[a](b)\n```") == "```text\n[a](b)\n```\n"


def test_a_link_that_leads_nowhere_is_refused_with_its_line() -> None:
    with pytest.raises(BrokenLinkError, match=r"broker/docs/store.md:2: gone.md leads nowhere"):
        _rewritten("first\n[gone](gone.md)")
    with pytest.raises(BrokenLinkError, match=r"broker/docs/store.md:1: client.md#gone names a heading"):
        _rewritten("[gone](client.md#gone)")


def test_a_docstring_keeps_its_blocks_and_names() -> None:
    lines = ["A *star* and a_ `Known` and `other`s:", "", "    one    two", "", "After."]
    made = docstrings.as_rst(lines, {"Known": "gantry.client.Known"}.get)
    assert made[0] == r"A \*star\* and a\_ :py:obj:`Known <gantry.client.Known>` and ``other``\ s:"
    assert [each for each in made if each] == [made[0], ".. code-block:: text", " " * 8 + "one    two", "After."]
    assert docstrings.as_rst(["Both:", "- `a`", "  b", "End"], {}.get) == ["Both:", "", "- ``a``", "  b", "", "End", ""]
    assert docstrings.as_rst(["1. stop, 2. go"], {}.get)[0] == r"1\. stop, 2. go"


def test_a_field_is_described_by_the_comment_of_its_line() -> None:
    said = docstrings.field_comments(gantry.client.ProducerSettings)
    assert said["attempt_timeout_s"].startswith("Of one attempt")
    assert "pull_messages_max" in docstrings.bare_fields(gantry.client.ConsumerSettings)
