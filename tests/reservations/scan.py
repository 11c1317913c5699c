"""Finds what the product takes and has to give back, by its source.

Three forms, each by file and attribute:

    pause      `x.pause_reading(...)`, given back by `x.resume_reading(...)`
    count      `self.x += ...` and `self.x -= ...` in one file
    flag       `x = True` and `x = False`, or `x.add(...)` and `x.discard(...)`, where the name says that something is
               under way (`_FLAGS`)

The *exits* of one are the functions that give it back; for a private function that others of its file call, these; a
function that is handed away, to be called later, is an exit itself.
What a `finally` gives back needs no exit of its own: every way out leads there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FLAGS = re.compile(r"_?(is_)?(coming|ending|paused|reading|looking|stepping|carrying|saving|under_way)$")
_HANDED_AWAY = ""
_TAKES, _GIVES = ("pause_reading", "add"), ("resume_reading", "discard", "remove")


class Taken(NamedTuple):
    """Something that is taken and given back: where, its name, and by which functions."""

    file: str
    name: str
    takes: frozenset[str]
    exits: frozenset[str]

    @property
    def key(self) -> str:
        """Return the name under which the list has it."""
        return f"{self.file} {self.name}"


class _Site(NamedTuple):
    name: str
    is_taking: bool
    function: str
    is_final: bool


def taken_in(path: Path, root: Path) -> Iterator[Taken]:
    """Yield what a file takes and gives back."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    sites: list[_Site] = []
    calls: dict[str, set[str]] = defaultdict(set)  # by called method: the functions of this file that call it
    calls[_HANDED_AWAY] = {
        node.attr
        for node in set(ast.walk(tree)) - {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    _walk(tree, "", False, sites, calls)
    by_name: dict[str, list[_Site]] = defaultdict(list)
    for site in sites:
        by_name[site.name].append(site)
    for name, found in sorted(by_name.items()):
        takes = frozenset(site.function for site in found if site.is_taking)
        gives = {site.function for site in found if not site.is_taking and not site.is_final}
        is_given = any(not site.is_taking for site in found)
        if (takes or name == "reading") and gives:
            yield Taken(str(path.relative_to(root)), name, takes, frozenset(_exits(gives, calls)))
        elif takes and not is_given and name == "reading":
            yield Taken(str(path.relative_to(root)), name, takes, frozenset())


def _exits(functions: set[str], calls: dict[str, set[str]]) -> set[str]:
    exits: set[str] = set()
    seen: set[str] = set()
    todo = list(functions)
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        callers = calls[one] - {one} if one.startswith("_") and not one.startswith("__") else set()
        todo += callers
        if not callers or one in calls[_HANDED_AWAY]:
            exits.add(one)
    return exits


def _walk(node: ast.AST, function: str, is_final: bool, sites: list[_Site], calls: dict[str, set[str]]) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
        is_final = False
    site = _site(node, function, is_final)
    if site is not None and function != "__init__":
        sites.append(site)
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
        calls[called.attr].add(function)
    if isinstance(node, ast.Try):
        for child in [*node.body, *node.handlers, *node.orelse]:
            _walk(child, function, is_final, sites, calls)
        for child in node.finalbody:
            _walk(child, function, True, sites, calls)
        return
    for child in ast.iter_child_nodes(node):
        _walk(child, function, is_final, sites, calls)


def _site(node: ast.AST, function: str, is_final: bool) -> _Site | None:
    match node:
        case ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), op=ast.Add() | ast.Sub() as op):
            return _Site(name, isinstance(op, ast.Add), function, is_final)
        case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=bool() as value)):
            return _Site(name, value, function, is_final) if _FLAGS.match(name) else None
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Attribute(attr=name), *_])], value=ast.Tuple(elts=[first, *_])):
            if _FLAGS.match(name) and isinstance(first, ast.Constant):
                return _Site(name, bool(first.value), function, is_final)
        case ast.Call(func=ast.Attribute(attr="pause_reading" | "resume_reading" as attr)):
            return _Site("reading", attr == "pause_reading", function, is_final)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=attr)) if _FLAGS.match(name):
            if attr in _TAKES or attr in _GIVES:
                return _Site(name, attr in _TAKES, function, is_final)
    return None
