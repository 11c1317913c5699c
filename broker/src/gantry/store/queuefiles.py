"""Queue files: reading them through maps, and the job that writes the tails of many queues into them.

A queue file has a fixed number of 20-byte entries (log offset i64, size i32, tag code i64; big-endian) and
is named by the byte offset of its first one.  It is sized when it is made, sparse behind what is written.
An entry is valid when its log offset is >= 0 and its size > 0; a queue whose first entry is not the first
of its file has the place before it filled with (0, 0x7fffffff, 0), as RocketMQ does.

Reading is the loop's, through maps of a bounded number of open files.  Writing is the housekeeper's, with
descriptors of its own, so that closing a file for the one does not affect the other.  Who must not wait for the disk
reads by `view_if_there`, or within `look`, which ends where a page is not in memory.

Many files are made durable together, by one sync of their file system: per file that costs a tenth (0.02 instead of 0.2
to 2 ms, by the disk).  Its failure may concern another program's file.  So ours are then written again and synced
each by itself; that result is final.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from gantry.errors import StoreError, SyncFailedError
from gantry.leaves import queues
from gantry.store import filenames
from gantry.store.coldrange import ColdRange, cold_range
from gantry.store.disk import Disk, File, FileSystem

ENTRY_BYTES = queues.ENTRY_BYTES
FILLER_SIZE = queues.PRE_BLANK_SIZE
FILLER = queues.pack_entries([(0, FILLER_SIZE, 0)])
_FILLERS = FILLER * 1024
_T = TypeVar("_T")
# Descriptors and maps, not memory: a broker with more queues than this in use pays an open and an mmap now and then.
_OPEN_MAX = 1024


class DamagedQueueError(StoreError):
    """These files cannot be a queue of this store; a start builds it again from the log."""


class _ColdEntriesError(Exception):
    """A look would have to wait for the disk here."""

    def __init__(self, place: ColdRange) -> None:
        super().__init__()
        self.place = place


class Tail(NamedTuple):
    """Entries on their way into a queue's files: their bytes begin at index `first`."""

    folder: str
    first: int
    entries: bytes


class QueueFiles:
    """The files of all queues: open ones for reading, and the job that writes."""

    def __init__(self, disk: Disk, file_entries: int, together_min: int) -> None:
        self._disk = disk
        self._together_min = together_min
        self._file_system: FileSystem | None = None
        self.file_entries = file_entries
        self.file_bytes = file_entries * ENTRY_BYTES
        self._open: OrderedDict[str, tuple[File, memoryview]] = OrderedDict()
        # What was brought in for the look that is under way; None: a read may wait for the disk.
        self._brought: Collection[ColdRange] | None = None
        # Folders of queues and topics whose names this process has made durable; the housekeeper's.
        self._durable: set[str] = set()

    def look(self, call: Callable[[], _T], brought: Collection[ColdRange]) -> _T | ColdRange:
        """Return what the call returns, or the first place that it needs and that is neither in memory nor in
        `brought`.  The call is broken off there, so it must not have changed anything.
        """
        before, self._brought = self._brought, brought
        try:
            return call()
        except _ColdEntriesError as cold:
            return cold.place
        finally:
            self._brought = before

    def view(self, folder: str, index: int) -> tuple[memoryview, int]:
        """The map of the file that holds this index, and the index of its first entry."""
        file, view, first = self._opened(folder, index)
        if self._brought is not None:
            cold = cold_range(file, view, (index - first) * ENTRY_BYTES, ENTRY_BYTES)
            if cold is not None and cold not in self._brought:
                raise _ColdEntriesError(cold)
        return view, first

    def view_if_there(self, folder: str, index: int, count: int) -> tuple[memoryview, int] | ColdRange:
        """The same, or the place of so many entries of this file, if reading them would wait for the disk."""
        file, view, first = self._opened(folder, index)
        start = (index - first) * ENTRY_BYTES
        size = min(count * ENTRY_BYTES, self.file_bytes - start)
        return cold_range(file, view, start, size) or (view, first)

    def _opened(self, folder: str, index: int) -> tuple[File, memoryview, int]:
        first = index - index % self.file_entries
        path = filenames.by_offset(folder, first * ENTRY_BYTES)
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return *found, first
        file = self._disk.open(path, create=False)
        view = file.map()
        if len(view) != self.file_bytes:
            file.close()
            raise DamagedQueueError(f"{path} has {len(view)} bytes, expected {self.file_bytes}; remove {folder}")
        self._open[path] = (file, view)
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1][0].close()
        return file, view, first

    def forget(self, folder: str) -> None:
        """Close what is open below this folder, before its files are removed."""
        for path in [path for path in self._open if path.startswith(folder + "/")]:
            self._open.pop(path)[0].close()

    def close(self) -> None:
        """Close the files that are open for reading, and the file system."""
        for file, _ in self._open.values():
            file.close()
        self._open.clear()
        if self._file_system is not None:
            self._file_system.close()
            self._file_system = None

    def write(self, tails: list[Tail]) -> None:
        """Write tails and sync them; the housekeeper's job; idempotent, so that a failed job can be repeated."""
        if len(tails) < self._together_min or not self._write_together(tails):
            for tail in tails:
                self._write_tail(tail)

    def _write_together(self, tails: list[Tail]) -> bool:
        """All of them with one sync; False when they have to be written one by one."""
        if self._file_system is None:
            # Opened before anything is written: it does not report failures from before it was opened.
            self._file_system = self._disk.file_system(_parent(_parent(tails[0].folder)))
            if self._file_system is None:
                return False
        path = ""
        for tail in tails:
            path = self._write_tail(tail, is_synced=False)
        try:
            self._file_system.sync(path)
        except SyncFailedError:
            return False
        for tail in tails:
            self._durable |= {tail.folder, _parent(tail.folder)}
        return True

    def _write_tail(self, tail: Tail, is_synced: bool = True) -> str:
        at, index, path = 0, tail.first, ""
        while at < len(tail.entries):
            first = index - index % self.file_entries
            count = min(len(tail.entries) - at, (first + self.file_entries - index) * ENTRY_BYTES)
            path = self._write_file(tail.folder, first, index, tail.entries[at : at + count], is_synced)
            at += count
            index += count // ENTRY_BYTES
        return path

    def _write_file(self, folder: str, first: int, index: int, entries: bytes, is_synced: bool = True) -> str:
        path = filenames.by_offset(folder, first * ENTRY_BYTES)
        is_new = not self._disk.exists(path)
        # A process that died before it synced a name left one that a power cut would take back.
        is_in_doubt = is_new or folder not in self._durable
        if is_in_doubt:
            self._durable -= {folder, _parent(folder)}
            self._disk.make_folders(folder, durably=is_synced)
        file = self._disk.open(path, create=is_new)
        try:
            if file.size() < self.file_bytes:
                self._begin_file(file, folder, first, index)
            if entries:
                file.pwrite(entries, (index - first) * ENTRY_BYTES)
            if is_synced:
                file.sync_data()
        finally:
            file.close()
        if is_in_doubt and is_synced:
            self._sync_names(folder)
        return path

    def _sync_names(self, folder: str) -> None:
        topic = _parent(folder)
        if topic not in self._durable:
            # An earlier job may have made it before a sync of the file system that never came, or failed.
            self._disk.sync_folder(_parent(topic))
        self._disk.sync_folder(folder)
        self._durable |= {folder, topic}

    def _begin_file(self, file: File, folder: str, first: int, index: int) -> None:
        # Sizing by a byte at the end leaves a hole, as RocketMQ's files have it.
        file.pwrite(b"\0", self.file_bytes - 1)
        before = filenames.by_offset(folder, (first - self.file_entries) * ENTRY_BYTES)
        if index > first and (first == 0 or not self._disk.exists(before)):
            file.pwrite(FILLER * (index - first), 0)

    def establish(self, folder: str, index: int) -> None:
        """Make the file from which a queue without entries goes on at index; blocks, only while a store opens."""
        self._write_file(folder, index - index % self.file_entries, index, b"")


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]


def list_files(disk: Disk, folder: str, file_bytes: int) -> list[tuple[str, int]]:
    """(path, byte offset) of a queue's files in order; StoreError when a name cannot be one of this file size."""
    found = []
    for name in disk.list(folder):
        start = filenames.parse_offset(name)
        if start is None:
            continue
        path = filenames.by_offset(folder, start)
        if start % file_bytes:
            raise StoreError(
                f"queue file {path} does not begin at a multiple of {file_bytes} bytes; "
                "set store.queue_file_entries (mappedFileSizeConsumeQueue) to what this store was written with"
            )
        found.append((path, start))
    return found


def fillers_at(buffer: bytes | bytearray | memoryview, at: int, count: int) -> int:
    """How many of the `count` entries from buffer[at] on are fillers, before the first that is none."""
    found = 0
    while found < count:
        part = bytes(buffer[at + found * ENTRY_BYTES : at + min(found + 1024, count) * ENTRY_BYTES])
        if part != _FILLERS[: len(part)]:
            return found + next(n for n in range(count) if part[n * ENTRY_BYTES : (n + 1) * ENTRY_BYTES] != FILLER)
        found += len(part) // ENTRY_BYTES
    return found


def invalid_at(buffer: bytes | bytearray | memoryview, at: int, count: int) -> int:
    """How many of the `count` entries from buffer[at] on to pass over: the first, and others that are none."""
    starts = range(at + ENTRY_BYTES, at + count * ENTRY_BYTES, ENTRY_BYTES)
    good = (number for number, one in enumerate(starts, 1) if queues.valid_count(buffer, one, one + ENTRY_BYTES))
    return next(good, count)
