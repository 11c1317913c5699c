"""What documents give a reader to type: fences of a language, and lines that begin with a program.

    - a fence ```python, ```java, ```sql, ```sh
    - each line of an indented block, or of a fence without a language, whose first word is a program (`gantry ...`);
      a line that ends in a backslash goes on with the next

A block behind `<!-- not typed: WHY -->` is for reading only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from testkit.sources import ROOT, tracked_files

PROGRAMS = ("gantry", "make", "pip", "python", "python3", "helm", "kubectl", "docker", "kind", "spark-submit", "git")
_LANGUAGES = ("python", "java", "sql", "sh", "bash", "shell", "console")
_FENCE = re.compile(r"^```(.*)\n((?s:.*?))^```$", re.MULTILINE)
_BLOCK = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
_MARK = re.compile(r"<!-- not typed: [^>]+ -->\s*\Z")


class Typed(NamedTuple):
    """One program, or one line; `kind` is its language or its first word."""

    document: str
    heading: str
    kind: str
    text: str
    is_marked: bool


def documents() -> list[str]:
    """READMEs and documents for users; charts generate theirs."""
    wanted = re.compile(r"[A-Z][\w.-]*\.md|(?:broker|operator|spark)/(?:README|docs/[\w-]+)\.md")
    return [path for path in tracked_files() if wanted.fullmatch(path) and path != "CHANGELOG.md"]


def read(document: str) -> list[Typed]:
    """All of a document, in its order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found: list[tuple[int, Typed]] = []
    for fence in _FENCE.finditer(text):
        language = fence[1].split(" ")[0]
        if language in _LANGUAGES:
            found.append((fence.start(), _typed(document, text, fence.start(), language, fence[2])))
        elif not language:
            found += _lines(document, text, fence.start(), fence[2])
    without = _FENCE.sub(lambda fence: re.sub(r"[^\n]", ".", fence[0]), text)
    for block in _BLOCK.finditer(without):
        found += _lines(document, text, block.start(), block[0])
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _lines(document: str, text: str, start: int, block: str) -> Iterator[tuple[int, Typed]]:
    for line in block.replace("\\\n", " ").splitlines():
        command = re.sub(r"\s+", " ", re.split(r"\s+#\s", line)[0]).strip()
        word = command.split(" ")[0].rpartition("/")[2]
        if word in PROGRAMS:
            yield start, _typed(document, text, start, word, command)


def _typed(document: str, text: str, start: int, kind: str, what: str) -> Typed:
    before = text[:start]
    headings = re.findall(r"^#+ (.+)$", before, re.MULTILINE)
    return Typed(document, headings[-1] if headings else "", kind, what, _MARK.search(before) is not None)
