"""Checking a whole store without changing it: is every record whole, and does its queue entry name it?

Two questions, one walk.  The log is read from its first segment to the end, with the checksum of every body;
for each record the queue entry at its queue offset has to name exactly its place and size.  What is found is
a list of faults, not an exception: the operator of a damaged disk needs to see all of them.

A record's checksum covers its body only.  Of its properties two things can be told: whether the tags are those of which
the queue entry has the code, and, where RocketMQ's broker wrote the record with `enabledAppendPropCRC`, whether all of
it is as it was: then its last property, `__CRC32#`, is a checksum of everything before.  Other damage to properties,
and to the few numbers of a record that nothing else repeats, is not found here; copies of a group can be compared.

The log ends at the first place where no record begins; segments behind it are made in advance and are empty.
Not everything unusual is a fault.  After a kill the log may end in half a record, and the newest records may lack
their entries: the next start cuts the one and makes the other.  The file `abort` says that this is to be expected.
Records of a deleted topic have no queue; they are counted apart.  Memory stays small: a segment is walked in slices,
queue files are mapped.

Everything is opened for reading; the caller makes sure that no broker writes meanwhile.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gantry.errors import StoreError
from gantry.leaves import hashes, queues, records
from gantry.model import names
from gantry.store import filenames
from gantry.store.disk import Disk, File

_SLICE = 4096  # records that are checked between two reports of progress
_FAULTS_KEPT = 100  # a broken disk breaks millions of records; a hundred show how
_FILES_OPEN = 256
# RocketMQ: messages of an open or rolled back transaction are in the log and in no queue.
_TRANSACTION_BITS = 0xC
_IN_NO_QUEUE = frozenset({0x4, 0xC})
_SUM = b"__CRC32#\x01"
_SUM_BYTES = len(_SUM) + 10 + 1
_CODE_MIN = -(1 << 31)  # RocketMQ: below stands an address in an extension of the queue


@dataclass(slots=True)
class Report:
    """What verify() found; `faults` are texts that name the place, `fault_count` counts those beyond the limit too."""

    segments: int = 0
    records: int = 0
    bytes: int = 0
    entries: int = 0  # records whose queue entry was found right
    without_queue: int = 0  # of topics that are not there any more
    unfinished: int = 0  # records whose entry the next start will make
    end: int | None = None  # log offset behind the last record
    tail: str = ""  # what the next start will cut, after a kill
    was_killed: bool = False
    by_topic: Counter[str] = field(default_factory=Counter)
    fault_count: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Count a fault and keep its text, up to the limit."""
        self.fault_count += 1
        if len(self.faults) < _FAULTS_KEPT:
            self.faults.append(text)


def verify(disk: Disk, root: str) -> Iterator[Report]:
    """Walk the store in slices; the same report comes back after each, and is complete after the last."""
    report = Report(was_killed=disk.exists(filenames.abort(root)))
    folder = filenames.commit_log(root)
    starts = [start for name in disk.list(folder) if (start := filenames.parse_offset(name)) is not None]
    if not starts:
        raise StoreError(f"{folder} holds no segment; is {root} a store?")
    entries = QueueEntries(disk, root)
    expected = starts[0]
    for start in starts:
        if start != expected:
            report.fault(f"segment {start:020d} found where {expected:020d} should follow")
        file = disk.open(filenames.by_offset(folder, start), create=False)
        report.segments += 1
        report.bytes += file.size()
        yield from _walk_segment(report, entries, file, start)
        expected = start + file.size()
        file.close()
    entries.close()


def _walk_segment(report: Report, entries: QueueEntries, file: File, start: int) -> Iterator[Report]:
    at, end = 0, file.size()
    with file.map() as view:
        reason = "more"
        while reason == "more":
            found, at, reason = records.walk(view, at, end, start + at, True, _SLICE)
            if found and report.end is not None:
                report.fault(f"segment {start:020d} holds records, and the log ended at {report.end} before it")
                report.end = None
            for entry in found:
                _check_entry(report, entries, entry)
                _check_sum(report, view[entry.log_offset - start : entry.log_offset - start + entry.size], entry)
            report.records += len(found)
            yield report
    file.unmap()
    if reason in ("blank", "end") or report.end is not None:
        return  # the next segment goes on; or this one waits for its turn
    report.end = start + at
    if reason.startswith("bad: "):
        what = reason.removeprefix("bad: ")
        if report.was_killed:
            report.tail = what
        else:
            report.fault(f"segment {start:020d}: {what}")


def _check_entry(report: Report, entries: QueueEntries, entry: records.Entry) -> None:
    if entry.sys_flag & _TRANSACTION_BITS in _IN_NO_QUEUE:
        return
    report.by_topic[entry.topic] += 1
    found = entries.at(entry.topic, entry.queue_id, entry.queue_offset)
    if found is not None and found[:2] == (entry.log_offset, entry.size):
        report.entries += 1
        if found[2] != entry.tags_code and found[2] >= _CODE_MIN and not names.is_system_topic(entry.topic):
            report.fault(
                f"{entry.topic}/{entry.queue_id}: entry {entry.queue_offset} has the tag code {found[2]}, the tags of "
                f"the record at {entry.log_offset} have {entry.tags_code}; one of the two is damaged"
            )
    elif report.was_killed and (found is None or found[1] == 0):
        report.unfinished += 1
    elif found is None:
        report.without_queue += 1
    else:
        report.fault(
            f"{entry.topic}/{entry.queue_id}: entry {entry.queue_offset} names {found[1]} bytes at {found[0]}, "
            f"the record has {entry.size} bytes at {entry.log_offset}"
        )


def _check_sum(report: Report, record: memoryview, entry: records.Entry) -> None:
    """RocketMQ: `MessageDecoder.createCrc32`; ten digits, the lowest first, behind everything that they cover."""
    last = entry.properties[-_SUM_BYTES:]
    if not last.startswith(_SUM) or len(last) != _SUM_BYTES or not last[len(_SUM) : -1].isdigit():
        return
    if int(last[len(_SUM) : -1][::-1]) != hashes.crc31(record[:-_SUM_BYTES]):
        report.fault(f"record at {entry.log_offset} of {entry.topic}: {_SUM[:-1].decode()} does not fit the record")


class QueueEntries:
    """Queue entries by topic, queue and offset, out of files mapped as they are needed."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._file_bytes: dict[str, int] = {}  # by queue folder; 0: the queue is not there
        self._open: OrderedDict[str, tuple[File, memoryview]] = OrderedDict()

    def at(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """The entry; zeros where none was written, None where the queue does not exist."""
        folder = filenames.queue(self._root, topic, queue_id)
        size = self._size_of_files(folder)
        if size == 0:
            return None
        byte = offset * queues.ENTRY_BYTES
        view = self._view(filenames.by_offset(folder, byte - byte % size))
        return queues.unpack(view, byte % size) if view is not None and byte % size < len(view) else (0, 0, 0)

    def close(self) -> None:
        """Unmap and close all files."""
        while self._open:
            file, view = self._open.popitem()[1]
            view.release()
            file.close()

    def _size_of_files(self, folder: str) -> int:
        size = self._file_bytes.get(folder)
        if size is None:
            names = [name for name in self._disk.list(folder) if filenames.parse_offset(name) is not None]
            size = 0
            if names:
                file = self._disk.open(f"{folder}/{names[0]}", create=False)
                size = file.size()
                file.close()
            self._file_bytes[folder] = size
        return size

    def _view(self, path: str) -> memoryview | None:
        found = self._open.get(path)
        if found is None:
            if not self._disk.exists(path):
                return None
            file = self._disk.open(path, create=False)
            found = self._open[path] = (file, file.map())
            if len(self._open) > _FILES_OPEN:
                old, view = self._open.popitem(last=False)[1]
                view.release()
                old.close()
        return found[1]
