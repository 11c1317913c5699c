"""Which programs of others the code of the tests starts, read from its syntax trees.

Found are words in calls of subprocess, asyncio and shutil.which: in the call itself, or in a name that the same
function or module gives a list to.  Not seen is a program that is found in a folder (PostgreSQL's) or named by a
variable of another module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

_STARTERS = frozenset(
    ("run", "Popen", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell", "which")
)
_MODULES = frozenset(("subprocess", "asyncio", "shutil", "debian"))
_PROGRAM = re.compile(r"[a-z][\w.+-]*")


def started_programs(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name of each program that this code starts, and the line."""
    module_lists = _lists_of(tree)
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]:
        lists = {**module_lists, **_lists_of(scope)}
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and node.args and _is_starter(node):
                name = _first_word(node.args[0], lists, 0)
                if name is not None and _PROGRAM.fullmatch(name):
                    yield name, node.lineno


def _is_starter(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr in _STARTERS and isinstance(function.value, ast.Name) and function.value.id in _MODULES
    # A module's own `run` takes a list; of `run("lag")` the word is a command of ours.
    return isinstance(function, ast.Name) and function.id == "run" and isinstance(call.args[0], ast.List)


def _lists_of(scope: ast.AST) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _first_word(value: ast.expr, lists: Mapping[str, ast.expr], depth: int) -> str | None:
    """Return the first word of a command, or None where it is not written in this module."""
    if depth > 8:
        return None
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else None
    if isinstance(value, ast.List | ast.Tuple) and value.elts:
        return _first_word(value.elts[0], lists, depth + 1)
    if isinstance(value, ast.Starred):
        return _first_word(value.value, lists, depth + 1)
    if isinstance(value, ast.BinOp):
        return _first_word(value.left, lists, depth + 1)
    if isinstance(value, ast.BoolOp):
        return _first_word(value.values[0], lists, depth + 1)
    if isinstance(value, ast.Name) and value.id in lists:
        return _first_word(lists[value.id], lists, depth + 1)
    return None
