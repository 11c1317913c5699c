"""Words that only this project knew do not come back (STYLE.md, the ADR plain-words)."""

from __future__ import annotations

import ast
import re
from collections import Counter

from testkit.sources import ROOT, tracked_files

RETIRED = (
    "anew", "candidacy", "leftovers", "mandate", "mastering", "mastery", "tenure", "vow", "vowing", "vows", "whoever",
)  # fmt: skip
# Identifiers as well: parts between underscores, and class names.
_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(RETIRED)}|{'|'.join(word.title() for word in RETIRED)})(?![a-z])")
_WRITTEN = (".py", ".pyx", ".md", ".yaml", ".tpl", ".toml")
# The word itself is meant: history, this rule, names of files and of the former version's documents.
_ABOUT_THEM = ("CHANGELOG.md", "tests/tidy/test_words.py", "broker/docs/adr/plain-words.md", "tests/golden/")
_FILES = ("vows.json",)


def retired_in(text: str) -> set[str]:
    for name in _FILES:
        text = text.replace(name, "")
    return {found.lower() for found in _WORD.findall(text)}


def test_no_retired_word_is_in_code_or_documents() -> None:
    found = {}
    for path in tracked_files():
        if path.endswith(_WRITTEN) and not path.startswith(_ABOUT_THEM):
            words = retired_in((ROOT / path).read_text(encoding="utf-8"))
            if words:
                found[path] = sorted(words)
    assert not found, f"use the terms of ARCHITECTURE.md, section 9: {found}"


def test_the_rule_sees_sentences_classes_and_names() -> None:
    assert retired_in("Tell whoever asks.") == {"whoever"}
    assert retired_in("class Mastery:\n    def begins_anew(self): ...") == {"mastery", "anew"}
    assert not retired_in("Renew it; vows.json stays; masteryx") and not retired_in("manewer")


def classes_in(text: str) -> list[str]:
    """Public classes of a module and those inside them; none inside functions."""
    found, rest = [], list(ast.parse(text).body)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found.append(node.name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rest += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
    return found


def test_a_public_class_name_is_used_once_in_a_distribution() -> None:
    names: dict[str, Counter[str]] = {place: Counter() for place in ("broker/src/", "operator/src/", "spark/src/")}
    for path in tracked_files():
        for place, counts in names.items():
            # The compiled twins of leaves have the names of the pure ones.
            if path.startswith(place) and path.endswith(".py") and "/leaves/_fast/" not in path:
                counts.update(classes_in((ROOT / path).read_text(encoding="utf-8")))
    assert all(len(counts) > 20 for counts in names.values())
    twice = {place: sorted(name for name, count in counts.items() if count > 1) for place, counts in names.items()}
    assert not any(twice.values()), f"call each class by what it holds: {twice}"


def test_classes_inside_classes_count_and_those_inside_functions_do_not() -> None:
    text = "class A:\n  class B: ...\n  def f(self):\n    class C: ...\nif True:\n  class D: ...\nclass _E: ..."
    assert sorted(classes_in(text)) == ["A", "B", "D"]
