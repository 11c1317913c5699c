"""The table of epochs: which epoch wrote which part of the log.

Each master notes, before its first record, its epoch and where its log ended: (epoch, start).  All that follows was
written in that epoch, up to the next entry or the log's end.  Slaves take the entries over with the bytes.  An epoch
has one master and therefore one start, so two logs whose tables share an entry are equal up to the end of that epoch
in the shorter of them.  A slave that comes back cuts its log there before it follows.

    invariants    epochs rise, starts rise, strictly; the last entry may be empty (start == end of the log)

A master that wrote nothing leaves an empty entry, which the next entry at the same offset replaces.  So an entry is
never refused for its start.  (RocketMQ's controller mode does refuse it, and loses epochs, #9689.)

A table is a value; nothing here knows where the log really ends, so callers pass `end`.  As bytes on the disk: magic,
version, count, the entries, CRC-32; on the wire: pairs (`handshake`).  A table that breaks an invariant is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from gantry.replication.members import NUMBER_MAX

ENTRIES_MAX = 65_536  # 1 MiB as bytes; retention forgets old entries with their part of the log
_OFFSET_MAX = (1 << 63) - 1
_MAGIC = b"GMQepoch"
_VERSION = 1
_HEAD = Struct(">8sHxxI")
_ENTRY = Struct(">qq")
_CHECKSUM = Struct(">I")


class EpochEntry(NamedTuple):
    """Records from the log offset `start` on are of `epoch`, up to the next entry."""

    epoch: int
    start: int


class CommonPoint(NamedTuple):
    """Two logs are equal below `end`, the last of it written in `epoch` (0: they share nothing)."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class EpochTable:
    """The entries, oldest first. The constructor raises ValueError when the invariants do not hold."""

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        if len(self.entries) > ENTRIES_MAX:
            raise ValueError(f"{len(self.entries)} epochs, at most {ENTRIES_MAX} are kept")
        for entry in self.entries:
            if not (1 <= entry.epoch <= NUMBER_MAX and 0 <= entry.start <= _OFFSET_MAX):
                raise ValueError(f"epoch {entry.epoch} from {entry.start} is out of range")
        for one, next_one in pairwise(self.entries):
            if one.epoch >= next_one.epoch or one.start >= next_one.start:
                raise ValueError(f"epoch {next_one.epoch} from {next_one.start} after {one.epoch} from {one.start}")

    @property
    def last_epoch(self) -> int:
        """The newest epoch; 0 when the table is empty."""
        return self.entries[-1].epoch if self.entries else 0

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at this log offset; 0 when it lies before the table."""
        return next((entry.epoch for entry in reversed(self.entries) if entry.start <= offset), 0)

    def begin(self, epoch: int, start: int) -> EpochTable:
        """Return the table after `epoch` began at the log's end `start`; an empty last entry is replaced.

        The same entry again changes nothing. ValueError for an epoch or a start that is not higher.
        """
        if self.entries and self.entries[-1] == (epoch, start):
            return self
        if epoch <= self.last_epoch:
            raise ValueError(f"epoch {epoch} cannot follow {self.last_epoch}")
        if self.entries and self.entries[-1].start > start:
            raise ValueError(f"epoch {epoch} cannot begin at {start}, epoch {self.last_epoch} began behind it")
        kept = [entry for entry in self.entries if entry.start < start]
        return EpochTable((*kept, EpochEntry(epoch, start)))

    def within(self, end: int) -> EpochTable:
        """Return the entries that a log which ends at `end` can have; others are left from a longer log."""
        return EpochTable(tuple(entry for entry in self.entries if entry.start <= end))

    def cut(self, point: CommonPoint) -> EpochTable:
        """Return the table after the log is cut to a common point: no newer epoch, no later start."""
        return EpochTable(
            tuple(entry for entry in self.entries if entry.epoch <= point.epoch and entry.start <= point.end)
        )

    def forget_before(self, begin: int) -> EpochTable:
        """Return the table without epochs whose whole part of the log is removed; the log begins at `begin`."""
        starts = [entry.start for entry in self.entries[1:]]
        gone = sum(start <= begin for start in starts)
        return EpochTable(self.entries[gone:])

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        body = _HEAD.pack(_MAGIC, _VERSION, len(self.entries))
        body += b"".join(_ENTRY.pack(*entry) for entry in self.entries)
        return body + _CHECKSUM.pack(crc32(body))


def decode(data: bytes) -> EpochTable:
    """Return the table in exactly these bytes; ValueError when they are damaged or no valid table."""
    if len(data) < _HEAD.size + _CHECKSUM.size:
        raise ValueError(f"{len(data)} bytes are too few for a table of epochs")
    magic, version, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError(f"magic {magic!r} version {version}, expected {_MAGIC!r} version {_VERSION}")
    end = _HEAD.size + count * _ENTRY.size
    if count > ENTRIES_MAX or len(data) != end + _CHECKSUM.size:
        raise ValueError(f"{len(data)} bytes for {count} epochs")
    if _CHECKSUM.unpack_from(data, end)[0] != crc32(memoryview(data)[:end]):
        raise ValueError("the checksum of the table of epochs does not match")
    return table_of(_ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end]))


def table_of(entries: Iterable[tuple[int, int]]) -> EpochTable:
    """Return a table of plain pairs, oldest first; ValueError when the invariants do not hold."""
    return EpochTable(tuple(EpochEntry(epoch, start) for epoch, start in entries))


def last_common(mine: EpochTable, my_end: int, theirs: EpochTable, their_end: int) -> CommonPoint | None:
    """Return the point up to which two logs are certainly equal; None when there is none, and only a clone helps.

    The result does not depend on which of the two logs is `mine`. The point may lie before the first byte that one log
    still keeps; the caller checks that.
    """
    if my_end == 0 or their_end == 0:
        return CommonPoint(0, 0)
    # An entry beyond the end of its own log describes a tail that was lost.
    mine, theirs = mine.within(my_end), theirs.within(their_end)
    shared = set(mine.entries) & set(theirs.entries)
    if not shared:
        # Both logs are complete and share no epoch, so they certainly differ from the first byte on.
        return CommonPoint(0, 0) if _is_whole(mine) and _is_whole(theirs) else None
    entry = max(shared)
    return CommonPoint(entry.epoch, min(_end_of(mine, entry, my_end), _end_of(theirs, entry, their_end)))


def _is_whole(table: EpochTable) -> bool:
    return bool(table.entries) and table.entries[0].start == 0


def _end_of(table: EpochTable, entry: EpochEntry, end: int) -> int:
    return next((after.start for after in table.entries if after.start > entry.start), end)
