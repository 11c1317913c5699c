"""The committed figures of the hot ways, and what a replay costs in calls of Python functions.

`tests/bench/hotways.json` holds two kinds of figures for each message of a way (`hotways.WAYS`):

    calls         calls of Python functions of the product, coroutines that go on included.  The same on every machine
                  and, within two percent, every Python: comprehensions, which are calls in Python 3.11 only, are left
                  out.  So are the leaves; where the product asks which of them it has, the calls differ
    instructions  by callgrind, for an architecture, a Python and its leaves.  Builds of one Python differ, so there may
                  be several of them, told apart by the instructions of a yardstick (tests/bench/gate.py)

A figure may grow by MARGIN before a test fails.  `make gate WRITE=1` writes both.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gantry.leaves import COMPILED
from testkit.hotways import Ground, Piece, Way

FIGURES = Path(__file__).parent.parent / "bench" / "hotways.json"
MARGIN = 0.10
RENEW = "if that is meant, `make gate WRITE=1` writes new figures"
_WARMING_ROUNDS, _ROUNDS = 1, 1
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


def load() -> dict[str, Any]:
    """Return the committed figures."""
    found: dict[str, Any] = json.loads(FIGURES.read_text())
    return found


def leaves() -> str:
    """Return which leaves this process has; calls have figures for either."""
    return "compiled leaves" if COMPILED else "pure leaves"


def key() -> str:
    """Return what figures of instructions hold for."""
    return f"{platform.machine()}, Python {sys.version_info.major}.{sys.version_info.minor}, {leaves()}"


def too_much(found: Mapping[str, float], committed: Mapping[str, float], unit: str) -> list[str]:
    """Return a line for each way that costs more than its figure allows, or has none."""
    lines = []
    for name, figure in found.items():
        before = committed.get(name)
        if before is None:
            lines.append(f"{name}: {figure:.1f} {unit} a message, and no figure is committed; `make gate WRITE=1`")
        elif figure > before * (1 + MARGIN):
            more = 100 * (figure / before - 1)
            told = f"{figure:.1f} {unit} a message, {before:.1f} are committed: {more:.0f} % more"
            lines.append(f"{name}: {told}; {RENEW}")
    return lines


def measured(way: Way, ground: Ground, measure: Callable[[Piece], None]) -> int:
    """Replay a way until it is warm, then have its pieces measured; how many messages those were."""
    messages = 0
    for number in range(_WARMING_ROUNDS + _ROUNDS):
        for piece in way.replay(ground):
            if number < _WARMING_ROUNDS:
                piece.run()
            else:
                measure(piece)
                messages += piece.messages
        ground.rest()
    return messages


def calls(way: Way, ground: Ground) -> float:
    """Return how many Python functions of the product are called for each message."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            is_ours = module.startswith("gantry.") and not module.startswith("gantry.leaves.")
            count += is_ours and frame.f_code.co_name not in _COMPREHENSIONS

    def measure(piece: Piece) -> None:
        sys.setprofile(note)
        try:
            piece.run()
        finally:
            sys.setprofile(None)

    messages = measured(way, ground, measure)
    return round(count / messages, 2)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from running within a way: when it does depends on all that was made before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
