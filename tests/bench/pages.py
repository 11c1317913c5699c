"""Writing into the page cache, which is part of what a send costs on every machine, and most of it on some.

A virtual machine may get its memory from the host page by page, at the first touch, and give back what is free: then
the first write into a page costs ten times what the copy costs, and a broker that runs on a machine with full memory
(all do, after a day) is not what is measured.  So each point begins by writing a file as large as what it will
write itself, and removing it.

`ahead_us` tells what it would bring to touch pages before the write comes: with zeros, or by reading what was allocated
and never written, which leaves clean pages.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

RECORD_BYTES = 1250  # of a message of 1 KiB
TOUCH_BYTES = 768 << 20
_AHEAD, _STEP = 8 << 20, 1 << 20
_LIBC = ctypes.CDLL(None)


def write_us(folder: Path, records: int, total: int) -> float:
    """User and system CPU of a record's share in pwrites of `records` each into the new pages of an allocated file."""
    run = bytes(RECORD_BYTES * records)
    path = folder / "pages"
    before = resource.getrusage(resource.RUSAGE_SELF)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, total)
        for at in range(0, total - len(run), len(run)):
            os.pwrite(file.fileno(), run, at)
    after = resource.getrusage(resource.RUSAGE_SELF)
    path.unlink()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e6 * used / (total / RECORD_BYTES)


def ahead_us(folder: Path, records: int, total: int, way: str) -> tuple[float, float]:
    """As `write_us`, with pages touched up to 8 MiB ahead; the CPU of a record for the writes and for touching.

    way: "" does not, "zeros" writes them, "read" asks for them (WILLNEED); "pace" has written pages leave for the disk
    behind the write (sync_file_range).
    """
    run, zeros = bytes(RECORD_BYTES * records), bytes(_STEP)
    path, touched, started, extra = folder / "pages", 0, 0, 0.0
    begin = _cpu_s()
    with path.open("w+b") as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, total)
        for at in range(0, total - len(run), len(run)):
            before = _cpu_s() if way else 0.0
            while way in ("zeros", "read") and touched < min(total - _STEP, at + _AHEAD):
                if way == "zeros":
                    os.pwrite(descriptor, zeros, touched)
                else:
                    os.posix_fadvise(descriptor, touched, _STEP, os.POSIX_FADV_WILLNEED)
                touched += _STEP
            if way == "pace" and at - started >= _AHEAD:
                _LIBC.sync_file_range(descriptor, ctypes.c_longlong(started), ctypes.c_longlong(at - started), 2)
                started = at
            extra += _cpu_s() - before if way else 0.0
            os.pwrite(descriptor, run, at)
    whole = _cpu_s() - begin
    path.unlink()
    each = 1e6 / (total / RECORD_BYTES)
    return (whole - extra) * each, extra * each


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
