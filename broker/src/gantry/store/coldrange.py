"""Parts of queue and index files that are not in memory."""

from __future__ import annotations

from typing import NamedTuple

from gantry.leaves import COMPILED
from gantry.store.disk import File, RealFile

if COMPILED:
    # Here, because the module is there only where the leaves are compiled; each pull far behind the end asks.
    from gantry.store.syncthread import in_memory

    # What was just made is in memory, unless that is never known: gVisor says of all pages that they are.
    _IS_TOLD = in_memory(memoryview(bytes(64)), 0, ((0, 64),), 0)


class ColdRange(NamedTuple):
    """[start, end) of a file that is not in memory and is looked at next."""

    file: File
    start: int
    end: int


def cold_range(file: File, memory: memoryview, start: int, size: int) -> ColdRange | None:
    """Return this place of a mapped file if it is known not to be in the page cache, else None; costs a system call."""
    if COMPILED and _IS_TOLD and isinstance(file, RealFile) and not in_memory(memory, 0, ((start, size),), 0):
        return ColdRange(file, start, start + size)
    return None
