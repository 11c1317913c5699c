"""The state of RocketMQ's timer wheel in a folder: reading it, and writing ours in its format.

`config/timercheck` begins with seven big-endian i64: last read time (everything due before is delivered), last flush
position of the timer log, last queue offset that was put into the wheel, the master's of that, state version,
timestamp, counter.  The files `timerwheel` and `timerlog/` are an index over the timer topic's records, which we read
instead (`recovery`).  They would be wrong when RocketMQ's broker gets the folder back, so they are removed when ours is
saved.

Then it builds its wheel again from the queue offset that we wrote.  Pending messages from there on are delivered
in time, and those behind it that we have delivered are delivered again (broker/docs/divergence.md).

Source: RocketMQ's `TimerCheckpoint` and `TimerMessageStore.recover`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from gantry.store import filenames
from gantry.store.disk import Disk
from gantry.store.statefile import replace

_CHECK = Struct(">7q")
_FILE_BYTES = 4096


class WheelPosition(NamedTuple):
    """Everything due before `done_ms` is delivered, of what stands in the queue before `queue_offset`."""

    done_ms: int
    queue_offset: int


def load(disk: Disk, root: str) -> WheelPosition | None:
    """Where RocketMQ's timer stood; None where it never ran."""
    path = _path(root)
    if not disk.exists(path):
        return None
    file = disk.open(path, create=False)
    found = file.pread(_CHECK.size, 0)
    file.close()
    if len(found) < _CHECK.size:
        return None
    done_ms, _, read, read_by_master, *_ = _CHECK.unpack(found)
    return WheelPosition(max(done_ms, 0), max(min(read, read_by_master), 0))


def save(disk: Disk, root: str, position: WheelPosition, now_ms: int) -> None:
    """Write where RocketMQ's broker has to go on; blocks."""
    done_ms, offset = position
    packed = _CHECK.pack(done_ms, 0, offset, offset, 0, now_ms, 1)
    replace(disk, _path(root), packed.ljust(_FILE_BYTES, b"\0"))


def forget(disk: Disk, root: str) -> None:
    """Remove RocketMQ's wheel, which is out of date; blocks."""
    disk.remove_tree(f"{root}/timerlog")
    disk.unlink(f"{root}/timerwheel")


def _path(root: str) -> str:
    return filenames.config(root, "timercheck")
