"""Writing into the page cache, which is part of what a send costs on every machine, and most of it on some.

A virtual machine may get its memory from the host page by page, at the first touch, and give back what is free: then
the first write into a page costs ten times what the copy costs, and a broker that runs on a machine with full memory
(all do, after a day) is not what is measured.  So each point begins by writing a file as large as what it will
write itself, and removing it.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

RECORD_BYTES = 1250  # of a message of 1 KiB
TOUCH_BYTES = 768 << 20


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
