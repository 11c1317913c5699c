"""What a piece of code costs, as a count that does not depend on the machine or on what else it does.

Lines of Python that ran, and calls of built-in functions.  A loop inside compiled code counts as one, so a cost that
hides in `sorted` or `join` has to be counted by what the test gives it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Ran:
    """Counts since the block began."""

    def __init__(self) -> None:
        self.calls = 0


@contextmanager
def instructions() -> Iterator[Ran]:
    """Count the lines and the calls of this thread in the block.

    Without a pass of the garbage collector: it calls what others have put into `gc.callbacks`, as Hypothesis does.
    """
    ran = Ran()

    def trace(frame: FrameType, event: str, argument: object) -> object:
        ran.calls += 1
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        yield ran
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
