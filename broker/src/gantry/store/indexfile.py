"""One index file: a hash table on disk from topic#key to log offsets.

    at 0    begin ms i64, end ms i64, begin log offset i64, end log offset i64, used slots i32, count i32
       40   slots: i32 each, the number of the newest entry whose hash falls into this slot, 0 for none
       ...  entries: key hash i32, log offset i64, seconds since begin i32, number of the previous entry i32

Big-endian.  Entry 0 is never used, therefore count, the number of the next entry, begins at 1.  Numbers in a
chain fall, whatever does not is the end of the chain.

What was added since the last checkpoint stands in memory: new entries behind the file's, and copies of the
slot pages they changed.  A checkpoint writes entries and their count, syncs, writes slots and the rest of the
header, syncs: a slot on disk never names an entry that is not there.  After a crash slots may name entries
beyond the count of the recovery file; such a number is followed to its predecessor, and replaying the log adds
the same entries with the same numbers again.

RocketMQ's broker takes such a number for an empty slot, and would not find what stands before it in the chain
any more.  Therefore the count in the header is never behind the slots.  The end offset is never ahead of them:
RocketMQ's broker adds records again that begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from struct import Struct
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.leaves import keys
from gantry.store import filenames
from gantry.store.coldrange import ColdRange, cold_range
from gantry.store.disk import Disk, File

HEADER_BYTES = 40
# Some 0.1 ms, and as many page faults at most.
WALKED_AT_ONCE = 64
_READ_AT_ONCE_BYTES = 1 << 20
ENTRY_BYTES = keys.ENTRY_BYTES
HEADER = Struct(">qqqqii")
ENTRY = keys.ENTRY
_PAGE_BYTES = 4 * keys.SLOTS_PER_PAGE


class IndexWrites(NamedTuple):
    """What a checkpoint writes into one index file."""

    path: str
    file_bytes: int
    entries_at: int
    entries: bytes
    counted: bytes
    """The header with the new count and the former end."""
    pages: list[tuple[int, bytes]]
    header: bytes


class Hit(NamedTuple):
    """An entry with the wanted hash."""

    log_offset: int
    store_ms: int


class _Pages(dict[int, bytearray]):
    """Changed slot pages by number; one that is asked for becomes one of them."""

    def __init__(self, unchanged: Callable[[int], bytearray]) -> None:
        super().__init__()
        self._unchanged = unchanged

    def __missing__(self, number: int) -> bytearray:
        page = self[number] = self._unchanged(number)
        return page


class IndexFile:
    """Loop thread only; what it hands out as IndexWrites is the housekeeper's."""

    def __init__(self, path: str, slots: int, entries: int) -> None:
        self.path = path
        self.begin_ms = self.end_ms = self.begin_log = self.end_log = self.used_slots = 0
        self.count = 1
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER_BYTES + 4 * slots
        self._file: File | None = None
        self._map = memoryview(b"")
        self._stored = 1
        self._stored_end = 0, 0  # end ms and end log offset, as the file's header has them
        self._tail = bytearray()
        self._pages = _Pages(self._page)
        self._frozen: dict[int, bytearray] = {}

    @property
    def file_bytes(self) -> int:
        """The size every file of these settings has."""
        return self._entries_at + ENTRY_BYTES * self._entries

    @property
    def tail_bytes(self) -> int:
        """Memory held by what the file lacks."""
        return len(self._tail) + _PAGE_BYTES * len(self._pages)

    @property
    def is_full(self) -> bool:
        """Whether the next entry belongs into a new file."""
        return self.count >= self._entries

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been added yet."""
        return self.count <= 1

    def load(self, disk: Disk) -> None:
        """Read the header; StoreError when the size is not that of these settings."""
        file = disk.open(self.path, create=False)
        if file.size() != self.file_bytes:
            size = file.size()
            file.close()
            raise StoreError(
                f"index file {self.path} has {size} bytes, expected {self.file_bytes}; "
                "set store.index_slots and store.index_entries to what this store was written with, or remove the file "
                "to have it built again"
            )
        self._file, self._map = file, file.map()
        header = HEADER.unpack(file.pread(HEADER_BYTES, 0))
        self.begin_ms, self.end_ms, self.begin_log, self.end_log, self.used_slots, count = header
        self.count = self._stored = min(max(count, 1), self._entries)
        self._stored_end = self.end_ms, self.end_log

    def read_slots(self) -> Iterator[None]:
        """Read all slots into the page cache, a part in each step: `put` looks at any of them."""
        if self._file is not None:
            for at in range(0, self._entries_at, _READ_AT_ONCE_BYTES):
                self._file.pread(min(_READ_AT_ONCE_BYTES, self._entries_at - at), at)
                yield

    def step_back(self, count: int) -> bool:
        """Forget entries from number `count` on, which a crash may have torn; False when there never were so many."""
        if not 1 < count <= self.count:
            return False
        self.count = self._stored = count
        return True

    @property
    def room(self) -> int:
        """How many more entries belong into this file."""
        return max(self._entries - self.count, 0)

    def put(self, found: bytes | bytearray) -> None:
        """Add keys of records, packed as `keys.hashed` gives them, not more than there is room for."""
        count = len(found) // keys.FOUND_BYTES
        assert 0 < count <= self.room
        if self.is_empty:
            _, self.begin_log, self.begin_ms = keys.FOUND.unpack_from(found)
        entries, fresh = keys.link(found, self.begin_ms, self.count, self._slots, self._pages, self._older)
        self._tail += entries
        self.used_slots += fresh
        self.count += count
        _, self.end_log, self.end_ms = keys.FOUND.unpack_from(found, len(found) - keys.FOUND_BYTES)

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[Hit | ColdRange | None]:
        """Entries with this hash stored within [begin_ms, end_ms], newest first.

        A chain may have millions of entries that are newer, or of other keys: None comes after every WALKED_AT_ONCE
        entries, so that the caller can give way or stop.  Before a page is touched that is not in memory comes its
        place, so that the caller can have it read.
        """
        slot = key_hash % self._slots
        if (cold := self._cold(HEADER_BYTES + slot * keys.SLOT.size, keys.SLOT.size)) is not None:
            yield cold
        number = self._newest(slot)
        for walked in count(1):
            if not number:
                return
            if walked % WALKED_AT_ONCE == 0:
                yield None
            is_stored = number < self._stored
            if is_stored and (cold := self._cold(self._entries_at + number * ENTRY_BYTES, ENTRY_BYTES)) is not None:
                yield cold
            found, log_offset, seconds, previous = self._entry(number)
            store_ms = self.begin_ms + seconds * 1000
            if store_ms + 999 < begin_ms:
                return
            if found == key_hash and store_ms <= end_ms:
                yield Hit(log_offset, store_ms)
            number = previous if previous < number else 0

    def _cold(self, start: int, size: int) -> ColdRange | None:
        """The place, if looking at it would wait for the disk."""
        return None if self._file is None else cold_range(self._file, self._map, start, size)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether a record stored within the range may be indexed here."""
        return not self.is_empty and begin_ms <= self.end_ms + 999 and end_ms >= self.begin_ms

    def _newest(self, slot: int) -> int:
        """The newest entry of a slot; numbers that a crash left behind are followed to one that counts."""
        return self._older(self._slot(slot), self.count)

    def _older(self, number: int, count: int) -> int:
        """The newest entry below `count` of the chain that this one is in."""
        while number >= count:
            previous = self._entry(number)[3]
            number = previous if previous < number else 0
        return max(number, 0)

    def _slot(self, slot: int) -> int:
        number, at = slot // keys.SLOTS_PER_PAGE, slot % keys.SLOTS_PER_PAGE * 4
        page = self._pages.get(number) or self._frozen.get(number)
        if page is not None:
            return int(keys.SLOT.unpack_from(page, at)[0])
        if self._file is None:
            return 0
        return int(keys.SLOT.unpack_from(self._map, HEADER_BYTES + number * _PAGE_BYTES + at)[0])

    def _page(self, number: int) -> bytearray:
        frozen = self._frozen.get(number)
        if frozen is not None:
            return bytearray(frozen)
        size = min(_PAGE_BYTES, 4 * self._slots - number * _PAGE_BYTES)
        if self._file is None:
            return bytearray(size)
        at = HEADER_BYTES + number * _PAGE_BYTES
        return bytearray(self._map[at : at + size])

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        if not 0 < number < self._entries:
            return 0, 0, 0, 0
        behind = number - self._stored
        if 0 <= behind * ENTRY_BYTES < len(self._tail):
            found = ENTRY.unpack_from(self._tail, behind * ENTRY_BYTES)
        elif self._file is None:
            return 0, 0, 0, 0
        else:
            found = ENTRY.unpack_from(self._map, self._entries_at + number * ENTRY_BYTES)
        key_hash, log_offset, seconds, previous = found
        return key_hash, log_offset, seconds, previous

    def freeze(self) -> IndexWrites | None:
        """What the files lack; stays readable here until thaw()."""
        if not self._tail:
            return None
        self._frozen.update(self._pages)
        self._pages = _Pages(self._page)
        # RocketMQ's broker adds records again that begin at or behind the end offset; this file has all keys of its
        # newest record, so its end is behind that record's beginning.
        header = (self.begin_ms, self.end_ms, self.begin_log, self.end_log + 1, self.used_slots, self.count)
        before_ms, before = self._stored_end
        return IndexWrites(
            self.path,
            self.file_bytes,
            self._entries_at + self._stored * ENTRY_BYTES,
            bytes(self._tail),
            HEADER.pack(self.begin_ms, before_ms, self.begin_log, before, self.used_slots, self.count),
            [(HEADER_BYTES + number * _PAGE_BYTES, bytes(page)) for number, page in sorted(self._frozen.items())],
            HEADER.pack(*header),
        )

    def thaw(self, writes: IndexWrites, disk: Disk) -> None:
        """Take these writes out of memory: they are durable in the file."""
        if self._file is None:
            self._file = disk.open(self.path, create=False)
            self._map = self._file.map()
        del self._tail[: len(writes.entries)]
        self._stored += len(writes.entries) // ENTRY_BYTES
        _, end_ms, _, end_log, _, _ = HEADER.unpack(writes.header)
        self._stored_end = end_ms, end_log
        self._frozen = {}

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file, self._map = None, memoryview(b"")


def write_index(disk: Disk, root: str, writes: IndexWrites) -> None:
    """Write entries, then slots, and make the file if it is missing; the housekeeper's job, may be repeated."""
    if not disk.exists(writes.path):
        _create(disk, root, writes)
    file = disk.open(writes.path, create=False)
    try:
        file.pwrite(writes.entries, writes.entries_at)
        file.pwrite(writes.counted, 0)
        file.sync_data()
        for at, pages in _merged(writes.pages):
            file.pwrite(pages, at)
        file.pwrite(writes.header, 0)
        file.sync_data()
    finally:
        file.close()


def _create(disk: Disk, root: str, writes: IndexWrites) -> None:
    unfinished = filenames.new_index_file(root)
    disk.unlink(unfinished)
    file = disk.open(unfinished, create=True)
    try:
        file.allocate(writes.file_bytes)
        file.sync_data()
    except StoreError:
        file.close()
        disk.unlink(unfinished)
        raise
    file.close()
    disk.rename(unfinished, writes.path)
    disk.sync_folder(filenames.index(root))


def _merged(pages: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Neighbouring pages as one write."""
    begun = end = -1
    parts: list[bytes] = []
    for at, page in pages:
        if at != end and parts:
            yield begun, b"".join(parts)
            parts = []
        if not parts:
            begun = at
        parts.append(page)
        end = at + len(page)
    if parts:
        yield begun, b"".join(parts)
