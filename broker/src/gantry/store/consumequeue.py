"""One consume queue: the places of a topic queue's messages in the log, by queue offset.

    files      [first, stored)   durable; written by the checkpoint, read through maps
    tail       [stored, next)    in memory: what was dispatched since; readers see it

Only what is flushed in the log goes into the files, so after a crash no entry of ours points behind the
recovered end; what a crash took from the tail is dispatched again.

Queue offsets below `min_offset` point to records that are gone from the log.  `log_end` is the end of the
newest record in this queue: a record that begins below it has been dispatched already.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry.leaves import queues
from gantry.store.coldrange import ColdRange
from gantry.store.queuefiles import ENTRY_BYTES, FILLER_SIZE, QueueFiles, Tail, fillers_at

Located = tuple[memoryview | bytearray, int, int]
_EMPTY = memoryview(b"")


class ConsumeQueue:
    """One queue.  Loop thread only."""

    __slots__ = (
        "_files",
        "_min",
        "_min_of_log",
        "_tail",
        "first",
        "folder",
        "log_end",
        "next",
        "queue_id",
        "stored",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, folder: str, files: QueueFiles, first: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self._files = files
        self._tail = bytearray()
        self.first = first
        self.stored = first
        self.next = first
        self.log_end = 0
        self._min = first
        self._min_of_log = -1

    def put(self, entries: bytes, log_end: int) -> None:
        """Add packed entries of consecutive queue offsets from next on."""
        self._tail += entries
        self.next += len(entries) // ENTRY_BYTES
        self.log_end = log_end

    def locate(self, offset: int) -> Located:
        """Where the entries from offset on are: (buffer, position, how many follow in this buffer)."""
        if offset >= self.stored:
            at = (offset - self.stored) * ENTRY_BYTES
            return self._tail, at, (len(self._tail) - at) // ENTRY_BYTES
        view, first = self._files.view(self.folder, offset)
        end = min(self.stored, first + self._files.file_entries)
        return view, (offset - first) * ENTRY_BYTES, end - offset

    def locate_if_there(self, offset: int, count: int) -> Located | ColdRange:
        """The same, or the place of so many entries of one file, if reading them would wait for the disk."""
        if offset >= self.stored:
            return self.locate(offset)
        found = self._files.view_if_there(self.folder, offset, min(count, self.stored - offset))
        if isinstance(found, ColdRange):
            return found
        view, first = found
        end = min(self.stored, first + self._files.file_entries)
        return view, (offset - first) * ENTRY_BYTES, end - offset

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tag code) at a queue offset; None outside the queue."""
        if not self.first <= offset < self.next:
            return None
        buffer, at, _ = self.locate(offset)
        log_offset, size, tags_code = queues.unpack(buffer, at)
        return (log_offset, size, tags_code) if size != FILLER_SIZE else None

    def min_offset(self, log_start: int) -> int:
        """The first queue offset whose record is still in the log (next when there is none)."""
        if self._min_of_log != log_start or self._min < self.first:
            self._min = self.search(self._min, log_start)
            self._min_of_log = log_start
        return self._min

    @property
    def begins(self) -> int | None:
        """Log offset of the first record that has an entry here; None when none has."""
        found = self.entry(self._past_fillers(self.first))
        return None if found is None else found[0]

    def search(self, low: int, log_offset: int) -> int:
        """The first queue offset >= low whose record begins at or behind log_offset; next when there is none."""
        return self.first_where(low, lambda entry: entry[0] >= log_offset)

    def first_where(self, low: int, is_behind: Callable[[tuple[int, int, int]], bool]) -> int:
        """Find by bisection the first queue offset >= low whose entry is behind what is looked for; next when there
        is none.

        A filler has no log offset, so the next entry that has one decides in its place.
        """
        low, high = max(low, self.first), self.next
        while low < high:
            middle = (low + high) // 2
            at = self._past_fillers(middle)
            found = self.entry(at)
            if found is None or is_behind(found):
                high = middle
            else:
                low = at + 1
        return self._past_fillers(low)

    def _past_fillers(self, offset: int) -> int:
        """The first queue offset from here on that is no filler; next when there is none."""
        while offset < self.next and self.entry(offset) is None:
            buffer, at, count = self.locate(offset)
            offset += fillers_at(buffer, at, count)
        return offset

    def reach(self, log_end: int) -> int:
        """The queue offset behind the last entry of a record that ends at or below log_end, at least `stored`.

        Fillers belong to the entry before them.
        """
        low, high = 0, len(self._tail) // ENTRY_BYTES
        while low < high:
            at = middle = (low + high) // 2
            while at > low and queues.unpack(self._tail, at * ENTRY_BYTES)[1] == FILLER_SIZE:
                at -= 1
            log_offset, size, _ = queues.unpack(self._tail, at * ENTRY_BYTES)
            if size == FILLER_SIZE or log_offset + size <= log_end:
                low = middle + 1
            else:
                high = at
        return self.stored + low

    def pending(self, log_end: int) -> Tail | None:
        """What of the tail belongs into the files: records that end at or below log_end."""
        count = self.reach(log_end) - self.stored
        return Tail(self.folder, self.stored, bytes(self._tail[: count * ENTRY_BYTES])) if count else None

    def settle(self, tail: Tail) -> None:
        """The tail is in the files now."""
        assert tail.first == self.stored
        del self._tail[: len(tail.entries)]
        self.stored += len(tail.entries) // ENTRY_BYTES

    @property
    def has_files_before_its_last(self) -> bool:
        """Whether it has files that may go some day: the last one always stays."""
        count = self._files.file_entries
        return self.first - self.first % count < (max(self.stored, 1) - 1) // count * count

    def drop_before(self, log_start: int) -> list[int]:
        """First indexes of files whose records are all gone, to be unlinked; the last file always stays."""
        keep = self.min_offset(log_start)
        count = self._files.file_entries
        last = (max(self.stored, 1) - 1) // count * count
        dropped = list(range(self.first - self.first % count, min(last, keep - keep % count), count))
        if dropped:
            self.first = dropped[-1] + count
        return dropped
