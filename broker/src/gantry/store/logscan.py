"""Reading the log from a point that is known to be a record boundary to where it ends.

The end is the first place where no whole record with the right checksum and the right log offset stands.
Whether that is the tail that a crash left, or damage to durable records, is decided afterwards:

    below what the recovery point calls durable           damage: CorruptRecordError
    with a good segment behind it that was durable        damage: CorruptRecordError
    anything else                                         the tail; what stands behind it is cut

A record's checksum covers its body only.  Behind what is durable a power cut may have kept some sectors of a
record and not others; one that reads as zeros where topic or properties should stand makes the record torn.  So does
a last byte that is zero: a write that ended in the middle leaves that, and no properties do.  Messages whose properties
have so many zeros are not taken (`append.admit`): they and all behind them would be cut.  The broker's copies of such
records, which RocketMQ's broker accepted, have a checksum of their properties (`leaves.zerosectors`).

Good records behind a bad one do not make it damage: a power cut keeps any subset of pages of what was not
synced, so they are what was never acknowledged under SYNC_FLUSH, and what ASYNC_FLUSH may lose.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.errors import CorruptRecordError
from gantry.leaves import records, zerosectors
from gantry.leaves.properties import UNWRITTEN
from gantry.store.segments import Segment, Segments

# One slice: about 10 ms of pure Python, checksums included.
_SLICE_RECORDS = 2048
_ZEROS = UNWRITTEN
_SECTOR_BYTES = len(_ZEROS)
_LENGTH_BYTES = 2


class LogScan:
    """One pass over the log."""

    def __init__(self, segments: Segments, start: int, durable: int | None = None) -> None:
        """durable: nothing below it can be torn; None: nothing at all, an earlier pass has looked."""
        self._segments = segments
        self._durable = durable
        self.at = start
        self.count = 0
        self.store_ms = 0
        self.reason = ""

    def entries(self, end: int | None = None) -> Iterator[list[records.Entry]]:
        """The records in slices; `at` is behind the last one.  Stops at end, or where `reason` says."""
        while self.at < (self._segments.end if end is None else end):
            segment = self._segments.at(self.at)
            length = segment.end - segment.start
            found, stop, reason = records.walk(
                segment.view, self.at - segment.start, length, self.at, True, _SLICE_RECORDS
            )
            torn = self._first_torn(segment, found)
            if torn is not None:
                del found[torn:]
                stop = (found[-1].log_offset + found[-1].size if found else self.at) - segment.start
                reason = f"bad: record at {segment.start + stop} is torn"
            if found:
                self.count += len(found)
                self.store_ms = max(self.store_ms, found[-1].store_ms)
                self.at = segment.start + stop
                yield found
            if reason == "blank":
                size = int.from_bytes(segment.view[stop : stop + 4], "big")
                if size == length - stop:
                    self.at = segment.end
                    continue
                reason = f"bad: blank record at {self.at} claims {size} bytes, {length - stop} left"
            if reason == "end" and stop == length:
                self.at = segment.end
            elif reason != "more":
                self.reason = reason
                return

    def _first_torn(self, segment: Segment, found: list[records.Entry]) -> int | None:
        if self._durable is None or not found or found[-1].log_offset < self._durable:
            return None
        for number, entry in enumerate(found):
            if entry.log_offset >= self._durable and _is_torn(segment, entry):
                return number
        return None

    def judge(self, durable: int, durable_ms: int) -> None:
        """CorruptRecordError when the scan ended in what was durable: below an offset, or before a time."""
        later = [s for s in self._segments if s.start > self.at and 0 < first_record_ms(s) <= durable_ms]
        if self.at >= durable and not later:
            return
        segment = self._segments.at(self.at)
        known = (
            f"the log was durable up to {durable}" if self.at < durable else f"{later[0].file.path} has good records"
        )
        raise CorruptRecordError(
            f"segment {segment.file.path}: {self.reason or 'no record'} at {self.at}, but {known}; "
            "look with `gantry store verify` and restore the segment from a replica or a backup"
        )


def _is_torn(segment: Segment, entry: records.Entry) -> bool:
    """Whether the end of this record, or a sector that holds some of it, was never written.

    The head cannot be missing, else there were no record, nor the body, which has a checksum.  Zeros that are no
    more than the length of empty properties are what was written.
    """
    start = entry.log_offset - segment.start
    end = start + entry.size
    if len(entry.properties) >= _SECTOR_BYTES and zerosectors.is_whole(entry.properties):
        # No sector of zeros stands before them either: a topic is shorter, and behind it is their length.
        return False
    if entry.properties and segment.view[end - 1] == 0:
        return True
    tail = len(entry.topic.encode()) + len(entry.properties) + _LENGTH_BYTES
    for at in range((end - tail) // _SECTOR_BYTES * _SECTOR_BYTES, end, _SECTOR_BYTES):
        piece = segment.view[max(at, start) : min(at + _SECTOR_BYTES, end)]
        if piece == _ZEROS[: len(piece)] and (entry.properties or end - at > _LENGTH_BYTES):
            return True
    return False


def first_record_ms(segment: Segment) -> int:
    """Store time of a segment's first record, 0 when it does not begin with one."""
    found, _, _ = records.walk(segment.view, 0, segment.end - segment.start, segment.start, False, 1)
    return found[0].store_ms if found else 0
