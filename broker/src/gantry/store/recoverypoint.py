"""The recovery file: where a start after a crash begins to read.

Two slots of one page, written in turn, each with a checksum; the valid one with the higher generation counts.
So a torn write loses the newest point, never the file.

    flushed      the log is durable below this offset
    dispatched   queue files and index have every record below this offset, durably; <= flushed
    java         the checkpoint longs that were written behind this point, and those that stood there before:
                 when the checkpoint file holds neither, RocketMQ's broker ran in between, and only its own
                 rules say what can be trusted
    clean        written by an orderly stop: the log ends at `flushed`
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from gantry.store import filenames
from gantry.store.disk import Disk

_MAGIC = b"GMQrecov"
_VERSION = 1
_SLOT_BYTES = 4096
# magic, version, clean, generation, four file sizes, flushed, dispatched, store ms, java twice, index names and counts
_BODY = Struct(">8siiq4qqqq5q5q24s24sqq")
_CHECKSUM = Struct(">I")

JavaLongs = tuple[int, int, int, int, int]
# Segment bytes, entries of a queue file, slots and entries of an index file: what the files were written with.
Sizes = tuple[int, int, int, int]


class IndexState(NamedTuple):
    """The index files that count: names of the oldest and the newest, how many, next entry number of the newest."""

    first: str = ""
    newest: str = ""
    files: int = 0
    following: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """One consistent view of what is durable."""

    generation: int
    clean: bool
    sizes: Sizes
    flushed: int
    dispatched: int
    store_ms: int
    index: IndexState
    java: JavaLongs
    java_before: JavaLongs

    def is_last_word(self, java: JavaLongs) -> bool:
        """Return whether our broker wrote last: RocketMQ's checkpoint holds one of the two values named here."""
        return java in (self.java, self.java_before)

    def encode(self) -> bytes:
        """Return the bytes of the slot: the fields and their checksum."""
        body = _BODY.pack(
            _MAGIC,
            _VERSION,
            self.clean,
            self.generation,
            *self.sizes,
            self.flushed,
            self.dispatched,
            self.store_ms,
            *self.java,
            *self.java_before,
            self.index.first.encode("ascii"),
            self.index.newest.encode("ascii"),
            self.index.files,
            self.index.following,
        )
        return body + _CHECKSUM.pack(crc32(body))


def decode(slot: bytes) -> RecoveryPoint | None:
    """The point in a slot; None when it is empty, torn or of another version."""
    if len(slot) < _BODY.size + _CHECKSUM.size:
        return None
    (checksum,) = _CHECKSUM.unpack_from(slot, _BODY.size)
    fields = _BODY.unpack_from(slot, 0)
    if checksum != crc32(slot[: _BODY.size]) or fields[0] != _MAGIC or fields[1] != _VERSION:
        return None
    return RecoveryPoint(
        clean=bool(fields[2]),
        generation=fields[3],
        sizes=fields[4:8],
        flushed=fields[8],
        dispatched=fields[9],
        store_ms=fields[10],
        java=fields[11:16],
        java_before=fields[16:21],
        index=IndexState(_text(fields[21]), _text(fields[22]), fields[23], fields[24]),
    )


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii")


def load(disk: Disk, root: str) -> RecoveryPoint | None:
    """The newest valid point; None when there is none."""
    path = filenames.recovery(root)
    if not disk.exists(path):
        return None
    file = disk.open(path, create=False)
    slots = [decode(file.pread(_SLOT_BYTES, number * _SLOT_BYTES)) for number in (0, 1)]
    file.close()
    return max((point for point in slots if point is not None), key=lambda point: point.generation, default=None)


def save(disk: Disk, root: str, point: RecoveryPoint) -> None:
    """Write the point into the slot of its generation, durably."""
    path = filenames.recovery(root)
    is_new = not disk.exists(path)
    file = disk.open(path, create=is_new)
    try:
        if file.size() < 2 * _SLOT_BYTES:
            file.pwrite(bytes(2 * _SLOT_BYTES), 0)
        file.pwrite(point.encode(), point.generation % 2 * _SLOT_BYTES)
        file.sync_data()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(filenames.ours(root))
