"""What a forked child must not use: connections that belong to its parent.

Both processes have the same socket after a fork.  What the child wrote on it would end up between the parent's frames,
and either could take the other's answers.  So every client is registered here, and the child's copy lets go of its
connections before anything else runs in the child.  The parent is not affected: a socket that is closed in only one
process stays open in the other.

There is one table for the process, because `os.register_at_fork` knows no way to take a function back.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that owns connections and has to give them up in a forked child."""

    def forked(self) -> None:
        """Give up the parent's connections; called in the child, where no other thread runs."""
        ...


_ENROLLED: WeakSet[Forked] = WeakSet()


def enrol(one: Forked) -> None:
    """Have `forked` called in every child, as long as the object is in use."""
    _ENROLLED.add(one)


def _in_child() -> None:
    for one in list(_ENROLLED):
        one.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(after_in_child=_in_child)
