"""RocketMQ's `checkpoint`: 4096 bytes, five big-endian longs, then zeros.

    physic ms   store time up to which the log is durable
    logics ms   store time up to which the queues are
    index ms    store time up to which the index is; its broker removes newer index files after a crash
    master flushed offset, confirm offset      replication; kept as found

Its broker takes min(physic, logics) - 3 s as the time before which nothing needs to be looked at after a
crash, so these are never later than what is really durable.  Source: `StoreCheckpoint`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from gantry.store import filenames
from gantry.store.disk import Disk
from gantry.store.recoverypoint import JavaLongs

_LONGS = Struct(">5q")
_FILE_BYTES = 4096
# RocketMQ subtracts this from its checkpoint, because a record's time is taken before it is written.
_SLACK_MS = 3000


class JavaCheckpoint(NamedTuple):
    """The contents of RocketMQ's checkpoint file: three times in ms, two log offsets."""

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    confirm: int = 0

    @property
    def trusted_ms(self) -> int:
        """Records stored before this are durable in log and queues."""
        return max(min(self.physic_ms, self.logics_ms) - _SLACK_MS, 0)

    @property
    def longs(self) -> JavaLongs:
        """As a plain tuple, for the recovery file."""
        return (self.physic_ms, self.logics_ms, self.index_ms, self.master_flushed, self.confirm)


def load(disk: Disk, root: str) -> JavaCheckpoint | None:
    """Read the file; None when it is missing or too short."""
    path = filenames.checkpoint(root)
    if not disk.exists(path):
        return None
    file = disk.open(path, create=False)
    found = file.pread(_LONGS.size, 0)
    file.close()
    return JavaCheckpoint(*_LONGS.unpack(found)) if len(found) == _LONGS.size else None


def save(disk: Disk, root: str, checkpoint: JavaCheckpoint) -> None:
    """Write the five longs, durably."""
    path = filenames.checkpoint(root)
    is_new = not disk.exists(path)
    file = disk.open(path, create=is_new)
    try:
        if file.size() < _FILE_BYTES:
            file.pwrite(bytes(_FILE_BYTES), 0)
        file.pwrite(_LONGS.pack(*checkpoint), 0)
        file.sync_data()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(root)
