"""What the loop does with tables at the size that they may have, measured in CPU time of the thread.

Each entry makes a table of a size and returns what is measured: steps between which the loop is free.  The longest step
may take `SLICE_S`, and an entry that is flat costs about the same at a tenth of the size.  CPU time of a thread does
not count what others do, but it counts their use of the caches: the best of some attempts counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from gantry.errors import RefusedError

SLICE_S = 0.005
QUICK_SHARE = 20
# A core that others use too takes several times as long: only what has no slices at all is found by the quick variant.
QUICK_PATIENCE = 5.0
_ATTEMPTS = 5
# What a flat entry may cost at ten times the size: caches miss more often.
_FLAT_FACTOR, _FLAT_S = 2.0, 0.001
_OVER = object()

Steps = Iterator[object]


class Grown(NamedTuple):
    """What grows, to which size, what is measured there, how long a step may be, and how often it is measured."""

    name: str
    size: int
    made: Callable[[int], Callable[[], Steps]]
    is_flat: bool
    step_s: float = SLICE_S
    attempts: int = _ATTEMPTS  # 1: what is measured uses the table up


def step(call: Callable[[], object]) -> Steps:
    """Make one step of a call."""
    call()
    yield


def steps_of(answer: Awaitable[object]) -> Steps:
    """Return the steps of a handler that gives way, also of one that refuses in the end."""
    try:
        yield from answer.__await__()  # type: ignore[misc]
    except RefusedError:
        return


def cpu_of(steps: Steps) -> list[float]:
    """Return the CPU seconds of each step."""
    found = []
    while True:
        begun = time.thread_time()
        is_over = next(steps, _OVER) is _OVER
        found.append(time.thread_time() - begun)
        if is_over:
            return found


def measured(run: Callable[[], Steps], count: int) -> tuple[float, float]:
    """Return the CPU seconds of the longest step and of all, each of its best attempt."""
    gc.collect()
    gc.disable()  # a pass over all that a test holds is no part of a step
    try:
        attempts = [cpu_of(run()) for _ in range(count)]
    finally:
        gc.enable()
    return min(map(max, attempts)), min(map(sum, attempts))


def check(grown: Grown, size: int, patience: float = 1.0) -> None:
    small = measured(grown.made(size // 10), grown.attempts)
    large = measured(grown.made(size), grown.attempts)
    print(f"{grown.name}: {size // 10} {small[0] * 1e6:.0f} us, {size} {large[0] * 1e6:.0f} us a step")
    assert large[0] <= patience * grown.step_s, f"{grown.name}: a step of {large[0] * 1000:.1f} ms"
    if grown.is_flat:
        assert large[1] <= _FLAT_FACTOR * small[1] + _FLAT_S, f"{grown.name}: {small[1]:.6f} s, {large[1]:.6f} s"
