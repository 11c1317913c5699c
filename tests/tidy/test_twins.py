"""Nobody but the leaves themselves may know which twin of a leaf runs."""

from __future__ import annotations

import ast

from testkit.sources import nodes_of, python_files

# What the compiled leaves have of their own; everything else in them is the pure code under the same name.
TWINS = {
    "frames": {"Send", "Pull", "decode", "encode_joint_reply", "encode_send_replies"},
    "requests": {"Send", "Pull"},
    "records": {"Entry", "encode_run", "named", "run_bytes", "size_of", "view", "walk", "whole"},
    "stored": {"Entry"},
    "queues": {"by_queue", "gather", "number", "pack_entries", "select", "stretches", "valid_count", "within"},
    "keys": {"hashed", "link", "matches"},
    "properties": {"pick", "scan"},
    "runs": {"entries", "plain", "seal", "sort", "unpack"},
    "delays": {"codes", "deliveries", "entries_at", "handles", "hide", "pack_coded", "ready"},
    "hashes": {"crc31", "index_hash", "java_hash"},
}
# Except where the pure code itself is looked at.
THEIR_OWN = ("broker/src/gantry/leaves/", "tests/differential/", "tests/unit/leaves/test_fields.py")


def imported_at_run_time(path: str) -> list[ast.ImportFrom]:
    """Imports outside of `if TYPE_CHECKING`."""
    for_types = {
        inner
        for node in nodes_of(path)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node not in for_types]


def test_twins_are_reached_through_their_package() -> None:
    # `from gantry.leaves.frames import Send` is the pure class for ever; `from gantry.leaves import frames` is the
    # module that runs, and its Send is the class of the requests that come in.
    wrong = []
    for path in python_files("broker", "tests"):
        for node in [] if path.startswith(THEIR_OWN) else imported_at_run_time(path):
            package, _, leaf = (node.module or "").rpartition(".")
            taken = {name.name for name in node.names} & TWINS.get(leaf, set())
            if package == "gantry.leaves" and taken:
                wrong.append(f"{path}:{node.lineno} imports {taken} of gantry.leaves.{leaf}: write {leaf}.NAME")
    assert not wrong, "\n".join(wrong)
