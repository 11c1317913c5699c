"""Nobody but the leaves themselves may know which twin of a leaf runs."""

from __future__ import annotations

import ast

import pytest

from testkit.sources import python_files, tree_of

# What the compiled leaves have of their own; everything else in them is the pure code under the same name.
TWINS = {
    "frames": {"Send", "Pull", "decode", "encode_send_replies"},
    "requests": {"Send", "Pull"},
    "records": {"Entry", "encode_run", "named", "run_bytes", "size_of", "view", "walk", "whole"},
    "stored": {"Entry"},
    "queues": {"by_queue", "gather", "number", "pack_entries", "select", "stretches", "valid_count", "within"},
    "keys": {"hashed", "link", "matches"},
    "properties": {"pick", "scan"},
    "runs": {"entries", "plain", "seal"},
    "hashes": {"crc31", "index_hash", "java_hash"},
}
# Except where the pure code itself is looked at.
THEIR_OWN = ("broker/src/gantry/leaves/", "tests/differential/", "tests/unit/leaves/test_fields.py")


def imported_at_run_time(tree: ast.Module) -> list[ast.ImportFrom]:
    """Imports outside of `if TYPE_CHECKING`."""
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in for_types]


@pytest.mark.parametrize("path", [path for path in python_files("broker", "tests") if not path.startswith(THEIR_OWN)])
def test_twins_are_reached_through_their_package(path: str) -> None:
    # `from gantry.leaves.frames import Send` is the pure class for ever; `from gantry.leaves import frames` is the
    # module that runs, and its Send is the class of the requests that come in.
    for node in imported_at_run_time(tree_of(path)):
        package, _, leaf = (node.module or "").rpartition(".")
        if package == "gantry.leaves":
            taken = {name.name for name in node.names} & TWINS.get(leaf, set())
            assert not taken, f"{path}:{node.lineno} imports {taken} of gantry.leaves.{leaf}: write {leaf}.NAME"
