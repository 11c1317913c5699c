"""Prose of documents has lines of at most 120 characters (STYLE.md); ruff says so of Python (E501)."""

from __future__ import annotations

import re

from testkit.sources import ROOT, tracked_files

WIDTH = 120
# Documents whose lines are longer, and why that is left so.
EXEMPT = {
    "CHANGELOG.md": "one line an entry",
    "README.md": "has longer lines; fill them again when it changes",
    "README.zh-CN.md": "Chinese has no blanks to break at",
    "ARCHITECTURE.md": "has longer lines; fill them again when it changes",
    "STYLE.md": "has longer lines; fill them again when it changes",
    "CONTRIBUTING.md": "has longer lines; fill them again when it changes",
    "broker/docs/adr/": "a decision is a record; it is not edited later",
    "tests/": "descriptions and results of measurements, one line each",
}
# What stays on one line: a link with its text, a code span with what is attached to it, a word.
_UNIT = re.compile(r"!?\[[^\]]*\]\([^)]*\)\S*|[^\s`]*(?:`[^`]*`[^\s`]*)+|\S+")
_MARKER = re.compile(r"\s*(?:[-*] |\d+\. )?")


def prose_of(text: str) -> list[tuple[int, str]]:
    """Return (line number, line) of all lines outside fences, tables and indented code."""
    found, is_fenced, is_code, former = [], False, False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        is_code = line.startswith("    ") and (is_code or not former.strip())
        if not (is_fenced or is_code or line.lstrip().startswith("|")):
            found.append((number, line))
        former = line
    return found


def is_breakable(line: str) -> bool:
    """Return whether the line is too long although its first link, code span or word is not."""
    indent = _MARKER.match(line)
    start = indent.end() if indent else 0
    first = _UNIT.match(line, start)
    return len(line) > WIDTH and first is not None and first.end() <= WIDTH


def test_prose_fits_into_a_line() -> None:
    found = []
    for path in tracked_files():
        if path.endswith(".md") and not path.startswith(tuple(EXEMPT)):
            lines = prose_of((ROOT / path).read_text(encoding="utf-8"))
            found += [f"{path}:{number}" for number, line in lines if is_breakable(line)]
    assert not found, f"longer than {WIDTH} characters: {found}"


def test_the_rule_sees_prose_and_leaves_code_tables_and_links() -> None:
    long = "word " * 30
    document = f"{long}\n\n    {long}\n\n- item\n    {long}\n```\n{long}\n```\n| {long} |\n"
    assert [number for number, line in prose_of(document) if is_breakable(line)] == [1, 6]
    assert not is_breakable(f"- [{long}](https://example.org)") and is_breakable(f"see [{long}](https://example.org)")
    assert not is_breakable("x" * 121) and not is_breakable("short")
