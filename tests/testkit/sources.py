"""What the repository holds, for the tests about the repository itself.

Only what git tracks counts: an environment or a cache beside the sources is nobody's style.
"""

from __future__ import annotations

import ast
import gc
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "broker" / "src"
LOOKED_AT = (ast.Import, ast.ImportFrom, ast.Call, ast.ClassDef, ast.ExceptHandler, ast.If, ast.keyword)


def git(*arguments: str) -> list[str]:
    """Lines of a git command's output in the repository."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths below the root that git tracks and that are still there."""
    return tuple(path for path in git("ls-files") if (ROOT / path).is_file())


def python_files(*below: str) -> list[str]:
    """Tracked Python files below one of the folders; below none: all."""
    wanted = tuple(f"{folder}/" for folder in below) or ("",)
    return [path for path in tracked_files() if path.endswith(".py") and path.startswith(wanted)]


@cache
def tree_of(path: str) -> ast.Module:
    """The file's syntax tree.

    No garbage is collected meanwhile: a finalizer that parses something itself makes CPython 3.11 fail here with
    "AST constructor recursion depth mismatch" (python/cpython#106905).
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    gc.disable()
    try:
        return ast.parse(text, path)
    finally:
        gc.enable()


@cache
def nodes_of(path: str) -> tuple[ast.AST, ...]:
    """The nodes of the file that rules look at, in the order of ast.walk."""
    return tuple(node for node in ast.walk(tree_of(path)) if isinstance(node, LOOKED_AT))


def module_of(path: str) -> str:
    """broker/src/gantry/store/store.py -> gantry.store.store"""
    parts = Path(path).relative_to("broker/src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def called_names(path: str) -> list[tuple[int, str]]:
    """Every call of the file whose target is a dotted name, as (line, the name with import aliases resolved)."""
    aliases: dict[str, str] = {}
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                aliases[name.asname or top] = name.name if name.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                aliases[name.asname or name.name] = f"{node.module}.{name.name}"
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and (dotted := _dotted(node.func)):
            head, dot, rest = dotted.partition(".")
            found.append((node.lineno, aliases.get(head, head) + dot + rest))
    return found


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else None
    return None
