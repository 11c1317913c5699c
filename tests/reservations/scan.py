"""Finds what the product takes and has to give back, by its source.

Four forms, each by file and attribute:

    pause      `x.pause_reading(who)`, given back by `x.resume_reading(who)`; each `who` of a file is one of its own
    place      `x.acquire()`, given back by `x.release()`
    count      `one.x += ...` and `one.x -= ...` in one file, of whatever object
    flag       `one.x = True` and `one.x = False`, or `x.add(...)` and `x.discard(...)`, where the name says that
               something is under way (`_UNDER_WAY`)

The *exits* of one are the functions that give it back; for a private function that others of its file call, these; a
function that is handed away, to be called later, is an exit itself.
What a `finally` gives back needs no exit of its own: every way out leads there.

What is taken and never given back has no exits.  That is a fault of a pause, of a place, of any flag (`_LASTING` ones
may stay up until their owner ends), and of a count that is held against a limit and
never assigned again; other counts are figures.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_UNDER_WAY = re.compile(r"_?(is_)?(\w+ing|\w*busy|\w*held|\w*paused|\w*_due|\w*in_work|\w*under_way)$")
_LASTING = re.compile(r"_?(is_)?(closing|ending|leaving|stopping|draining|listening|running|serving)$")
_HANDED_AWAY = ""
_TAKES = ("pause_reading", "acquire", "add")


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
    form: str
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
    limited, otherwise = _limited(tree), _given_otherwise(tree)
    by_name: dict[str, list[_Site]] = defaultdict(list)
    for site in sites:
        by_name[site.name].append(site)
    for name, found in sorted(by_name.items()):
        takes = frozenset(site.function for site in found if site.is_taking)
        gives = {site.function for site in found if not site.is_taking and not site.is_final}
        is_given = name in otherwise or any(not site.is_taking for site in found)
        must_be_given = _must_be_given(found[0], limited)
        if (takes or name.startswith("reading")) and gives:
            yield Taken(str(path.relative_to(root)), name, takes, frozenset(_exits(gives, calls)))
        elif takes and not is_given and must_be_given:
            yield Taken(str(path.relative_to(root)), name, takes, frozenset())


def _must_be_given(site: _Site, limited: set[str]) -> bool:
    if site.form == "count":
        return site.name in limited
    return site.form != "flag" or not _LASTING.match(site.name)


def _limited(tree: ast.AST) -> set[str]:
    """Return the attributes that are held against a limit, and set nowhere but in a constructor."""
    counted = {node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    limited: set[str] = set()
    assigned: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE):
                limited |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and _is_own(one)}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and function.name != "__init__":
                if node not in counted:
                    assigned.add(node.attr)
    return limited - assigned


def _given_otherwise(tree: ast.AST) -> set[str]:
    """Return the attributes that are assigned together with others, and sets whose `discard` is handed away."""
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    given: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=elements, ctx=ast.Store()):
                given |= {one.attr for one in elements if isinstance(one, ast.Attribute)}
            case ast.Attribute(value=ast.Attribute(attr=name), attr="discard") if node not in called:
                given.add(name)
    return given


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _exits(functions: set[str], calls: dict[str, set[str]]) -> set[str]:
    exits: set[str] = set()
    seen: set[str] = set()
    todo = list(functions)
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        callers = calls[one] - {one, "__init__"} if one.startswith("_") and not one.startswith("__") else set()
        todo += callers
        if not callers or one in calls[_HANDED_AWAY]:
            exits.add(one)
    return exits


def _walk(node: ast.AST, function: str, is_final: bool, sites: list[_Site], calls: dict[str, set[str]]) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
        is_final = False
    site = _site(node, function, is_final)
    if site is not None and (function != "__init__" or site.form == "count"):
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
        case ast.AugAssign(target=ast.Attribute(attr=name), op=ast.Add() | ast.Sub() as op):
            return _Site(name, "count", isinstance(op, ast.Add), function, is_final)
        case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=bool() as value)):
            return _flag(name, value, function, is_final)
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Attribute(attr=name), *_])], value=ast.Tuple(elts=[first, *_])):
            if isinstance(first, ast.Constant):
                return _flag(name, bool(first.value), function, is_final)
        case ast.Call(func=ast.Attribute(attr="pause_reading" | "resume_reading" as attr), args=args):
            name = " ".join(["reading", *(ast.unparse(one) for one in args)])
            return _Site(name, "pause", attr in _TAKES, function, is_final)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="acquire" | "release" as attr)):
            return _Site(name, "place", attr in _TAKES, function, is_final)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="add" | "discard" | "remove" as attr)):
            return _Site(name, "flag", attr in _TAKES, function, is_final) if _UNDER_WAY.match(name) else None
    return None


def _flag(name: str, value: bool, function: str, is_final: bool) -> _Site | None:
    return _Site(name, "flag", value, function, is_final) if _UNDER_WAY.match(name) else None
