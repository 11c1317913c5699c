"""Finding the end of a queue's files at a start.

What is below the limit was synced before the recovery point was written, therefore it is a run of valid
entries with rising log offsets, and its end is found by bisection.  What stands behind it may be any subset
of pages of later writes: it is not looked at, and overwritten when the log is dispatched again.  Fillers have no
log offset: they count when the next entry does, or when the queue-base table, which is written after them, has them.

A folder of RocketMQ's after a crash has no such limit: its rule is a walk over the last three files up to the
first invalid entry, cut afterwards at the recovered end of the log.
"""

from __future__ import annotations

from itertools import pairwise

from gantry.errors import StoreError
from gantry.leaves import queues
from gantry.store import filenames
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import Disk, File, unlink_in_order
from gantry.store.queuefiles import ENTRY_BYTES, FILLER, DamagedQueueError, QueueFiles, fillers_at, list_files

# RocketMQ walks the last three files of a queue.
_WALKED_FILES = 3


class QueueLoader:
    """Opens queues.

    limit: the log offset below which their entries are durable; None: there is no such limit (RocketMQ's folder).
    walk: read entry by entry, as RocketMQ does after a crash of its own.
    """

    def __init__(self, disk: Disk, root: str, files: QueueFiles, limit: int | None, walk: bool) -> None:
        self._disk = disk
        self._root = root
        self._files = files
        self._limit = limit
        self._walk = walk

    def folders(self) -> list[tuple[str, int]]:
        """Topics and queue ids that have a folder."""
        found = []
        for topic in self._disk.list(filenames.consume_queues(self._root)):
            for name in self._disk.list(filenames.topic_queues(self._root, topic)):
                queue_id = filenames.parse_queue_id(name)
                if queue_id is not None:
                    found.append((topic, queue_id))
        return found

    def load(self, topic: str, queue_id: int, durable: int = 0) -> ConsumeQueue | None:
        """The queue up to the limit; None when its files hold nothing (they are removed then).

        durable: entries below this queue offset are known to be below the limit.

        DamagedQueueError when the files cannot be right; StoreError when their size is another setting's.
        """
        folder = filenames.queue(self._root, topic, queue_id)
        found = list_files(self._disk, folder, self._files.file_bytes)
        for (path, start), (_, following) in pairwise(found):
            if following != start + self._files.file_bytes:
                raise DamagedQueueError(f"{path} is not followed by its neighbour")
        number, count = self._walked(found) if self._walk else self._bisected(found, durable)
        for stale, _ in reversed(found[number + 1 :]):
            unlink_in_order(self._disk, stale)
        if number < 0:
            return None
        first, start = found[0][1], found[number][1]
        queue = ConsumeQueue(topic, queue_id, folder, self._files, first // ENTRY_BYTES)
        queue.stored = queue.next = start // ENTRY_BYTES + count
        return self._with_end(queue)

    def _bisected(self, found: list[tuple[str, int]], durable: int) -> tuple[int, int]:
        """(number of the last file that counts, its entries); the number is -1 when no file counts."""
        for number in range(len(found) - 1, -1, -1):
            path, start = found[number]
            count = self._count(path, max(durable - start // ENTRY_BYTES, 0))
            # An empty first file that does not begin at 0 says where the queue goes on.
            if count or (number == 0 and start > 0):
                return number, count
        return -1, 0

    def _walked(self, found: list[tuple[str, int]]) -> tuple[int, int]:
        number, count = -1, 0
        for number in range(max(0, len(found) - _WALKED_FILES), len(found)):
            count = self._count(found[number][0])
            if count < self._files.file_entries:
                break
        return (-1, 0) if number == 0 and count == 0 and found[0][1] == 0 else (number, count)

    def _with_end(self, queue: ConsumeQueue) -> ConsumeQueue:
        for index in range(queue.next - 1, queue.first - 1, -1):
            found = queue.entry(index)
            if found is not None:
                queue.log_end = found[0] + found[1]
                break
        return queue

    def _count(self, path: str, durable: int = 0) -> int:
        file = self._disk.open(path, create=False)
        try:
            size = file.size()
            if size not in (0, self._files.file_bytes) and self._limit is None:
                raise StoreError(
                    f"queue file {path} has {size} bytes, expected {self._files.file_bytes}; "
                    "set store.queue_file_entries (mappedFileSizeConsumeQueue) to what this store was written with"
                )
            entries = size // ENTRY_BYTES
            count = (
                queues.valid_count(file.pread(size, 0), 0, size) if self._walk else self._bisect(file, durable, entries)
            )
            if count and size != self._files.file_bytes:
                raise DamagedQueueError(f"{path} has {size} bytes, expected {self._files.file_bytes}")
            return count
        finally:
            file.close()

    def _bisect(self, file: File, durable: int, high: int) -> int:
        # Most queues got nothing since the table was written: two looks tell.
        low = min(durable, high)
        if low and not self._is_durable(file.pread(ENTRY_BYTES, (low - 1) * ENTRY_BYTES)):
            low = 0  # the table speaks of a topic that was deleted since
        middle = low
        while low < high:
            at = middle if self._limit is None else _past_fillers(file, middle, high)
            if at < high and self._counts(file.pread(ENTRY_BYTES, at * ENTRY_BYTES)):
                low = at + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def _is_durable(self, entry: bytes) -> bool:
        return entry == FILLER or self._counts(entry)

    def _counts(self, entry: bytes) -> bool:
        log_offset, size, _ = queues.unpack(entry, 0)
        return log_offset >= 0 and size > 0 and (self._limit is None or log_offset < self._limit)


def _past_fillers(file: File, at: int, end: int) -> int:
    """The first entry from here on that is no filler, or the end."""
    if file.pread(ENTRY_BYTES, at * ENTRY_BYTES) == FILLER:
        block = file.pread((end - at) * ENTRY_BYTES, at * ENTRY_BYTES)
        at += fillers_at(block, 0, end - at)
    return at


def cut_queue(disk: Disk, queue: ConsumeQueue, files: QueueFiles, log_end: int) -> None:
    """Take entries of records that do not end at or below log_end out of a queue's files, for good."""
    keep = queue.next
    while keep > queue.first:
        found = queue.entry(keep - 1)
        if found is None or found[0] + found[1] <= log_end:
            break
        keep -= 1
    for path, start in list_files(disk, queue.folder, files.file_bytes):
        first = start // ENTRY_BYTES
        if first + files.file_entries <= keep:
            continue
        if first >= keep and first > queue.first:
            disk.unlink(path)
            continue
        file = disk.open(path, create=False)
        begin = max(keep - first, 0) * ENTRY_BYTES
        behind = file.pread(files.file_bytes - begin, begin)
        if behind.count(0) != len(behind):
            file.zero(begin, files.file_bytes)
            file.sync_data()
        file.close()
    files.forget(queue.folder)
    if disk.exists(queue.folder):
        disk.sync_folder(queue.folder)
    queue.stored = queue.next = keep
    found = queue.entry(keep - 1)
    queue.log_end = found[0] + found[1] if found is not None else 0
