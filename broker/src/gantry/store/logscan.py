"""Reading the log from a point that is known to be a record boundary to where it ends.

The end is the first place where no whole record with the right checksum and the right log offset stands.
Whether that is the tail that a crash left or damage to what had been kept is judged afterwards:

    below what the recovery point calls durable           damage: CorruptRecordError
    with a good segment behind it that was durable        damage: CorruptRecordError
    anything else                                         the tail; what stands behind it is cut

Good records behind a bad one do not make it damage: a power cut keeps any subset of pages of what was not
synced, so they are what was never acknowledged under SYNC_FLUSH, and what ASYNC_FLUSH may lose.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.errors import CorruptRecordError
from gantry.leaves import records
from gantry.store.segments import Segment, Segments

# One slice: about 10 ms of pure Python, checksums included.
_SLICE_RECORDS = 2048


class LogScan:
    """One pass over the log."""

    def __init__(self, segments: Segments, start: int) -> None:
        self._segments = segments
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


def first_record_ms(segment: Segment) -> int:
    """Store time of a segment's first record, 0 when it does not begin with one."""
    found, _, _ = records.walk(segment.view, 0, segment.end - segment.start, segment.start, False, 1)
    return found[0].store_ms if found else 0
