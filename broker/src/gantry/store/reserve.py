"""Room that is kept for a full disk: a file that is removed when its room is needed.

A segment can be removed only when the queue-base table holds its records.  That table, the queue and index files before
it and the gravestones of deleted topics have to be written on the disk that is full.  So without a reserve the broker
could not make room on a full disk.  The file exists from the first checkpoint on.  A job that finds no room removes it
and is repeated; `keep` makes it again as soon as that is possible, and until then nothing is appended.

Belongs to the housekeeper's jobs; `is_whole` may be read by the loop between them.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry.errors import DiskFullError, StoreError
from gantry.store import filenames
from gantry.store.disk import Disk
from gantry.store.settings import StoreSettings

# What a checkpoint writes in about a second at 100 000 messages a second, and a page for each of a thousand queues.
_BYTES_MAX = 16 << 20
_BYTES_MIN = 8 << 10
_SHARE_OF_SEGMENT = 16


class Reserve:
    """The reserve file of one store; used by the housekeeper's jobs."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        self._disk = disk
        self._path = filenames.reserve(settings.root)
        self._bytes = min(_BYTES_MAX, max(_BYTES_MIN, settings.segment_bytes // _SHARE_OF_SEGMENT))
        self._is_kept = False
        self.is_whole = True  # it was never removed, or was made again

    def carry_out(self, job: Callable[[], object]) -> None:
        """Run the job; when the disk is full, remove the reserve and run it again.  DiskFullError if that fails too."""
        try:
            job()
        except DiskFullError:
            if not self._give_up():
                raise
            job()

    def keep(self) -> None:
        """Make the file unless it exists; `is_whole` becomes False when there is no room for it."""
        if self._is_kept:
            return
        try:
            self._make()
        except DiskFullError:
            self.is_whole = False
            return
        self._is_kept = self.is_whole = True

    def _make(self) -> None:
        file = self._disk.open(self._path, create=True)
        try:
            file.allocate(self._bytes)
        except StoreError:
            self._disk.unlink(self._path)
            raise
        finally:
            file.close()

    def _give_up(self) -> bool:
        """Remove the file, also one of an earlier process; return whether that made room."""
        was_there = self._disk.exists(self._path)
        self._disk.unlink(self._path)
        self._is_kept = self.is_whole = False
        return was_there
