"""Words that only this project knew do not come back (STYLE.md, the ADR plain-words)."""

from __future__ import annotations

import re

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
