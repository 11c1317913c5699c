"""Our docstrings as reStructuredText, which autodoc expects.

They are plain text: paragraphs, lists with hyphens, indented blocks that keep their lines, `names` in backticks.
Nothing else has a meaning, so every other character that reStructuredText would interpret is escaped.  A field of a
dataclass has no docstring; the comment at the end of its line says what it is.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Sequence
from functools import cache

_CODE = re.compile(r"`([^`]+)`")
_SPECIAL = re.compile(r"([\\*|]|_(?![a-zA-Z0-9]))")
_LIST = re.compile(r"^(\d+|[a-zA-Z#])([.)]) ")


def as_rst(lines: Sequence[str], link: Callable[[str], str | None]) -> list[str]:
    """Return the docstring for Sphinx; `link` gives the full name of a documented object, or None for other text."""
    made: list[str] = []
    is_block = is_list = False
    for line in lines:
        if not line.strip():
            made.append("")
            continue
        is_indented = line.startswith(" ")
        if not is_indented:
            if line.startswith("- ") != is_list or is_block:
                made.append("")
            is_list = line.startswith("- ")
        if is_indented and not is_list and not is_block:
            made += ["", ".. code-block:: text", ""]
        is_block = is_indented and not is_list
        made.append(f"    {line}" if is_block else _text(line, link))
    return [*made, ""]


def _text(line: str, link: Callable[[str], str | None]) -> str:
    """Return a line outside of blocks."""
    parts, end = [], 0
    for found in _CODE.finditer(line):
        parts.append(_SPECIAL.sub(r"\\\1", line[end : found.start()]))
        name = link(found[1])
        parts.append(f":py:obj:`{found[1]} <{name}>`" if name else f"``{found[1]}``")
        end = found.end()
        if line[end : end + 1].isalnum():
            parts.append("\\ ")  # `name`s: markup has to end at the end of a word
    parts.append(_SPECIAL.sub(r"\\\1", line[end:]))
    return _LIST.sub(r"\1\\\2 ", "".join(parts))


@cache
def field_comments(owner: type) -> dict[str, str]:
    """Return the comments at the ends of the lines of a class's fields, by field."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    comments = dict(_comments(source))
    found = {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.end_lineno in comments:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                found[target.id] = comments[node.end_lineno]
    return found


def bare_fields(owner: type) -> list[str]:
    """Return the fields of a dataclass of which nothing is said; the signature has their types and defaults."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    return [field.name for field in fields if field.name not in field_comments(owner)]


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comment = token.string.lstrip("# ")
            yield token.start[0], comment[:1].upper() + comment[1:]
