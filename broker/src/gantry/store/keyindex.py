"""The index: records by topic#key and time, over a list of index files, the newest last.

A record has an entry for its unique key and for each of its keys, one for each hash and a bounded number.  The hashed
keys of dispatched records wait,
packed, until the log is flushed up to them, so that nothing in the files points to what a power cut may take; queries
search the waiting ones too, so what is dispatched is found at once.

`position` is the log offset up to which files and their tails have everything: records that begin below it
are not added again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.leaves import keys, records
from gantry.store import filenames
from gantry.store.coldrange import ColdRange
from gantry.store.disk import Disk
from gantry.store.indexfile import Hit, IndexFile, IndexWrites, write_index
from gantry.store.recoverypoint import IndexState

# How many keys one slice of absorb() takes, about 1 us each in pure Python; more when many wait.
_SLICE_KEYS = 512
_SLICES_MAX = 32


class KeyIndex:
    """All index files of a store and the keys that wait for them.  Loop thread only."""

    def __init__(self, disk: Disk, root: str, clock: Clock, slots: int, entries: int) -> None:
        self._disk = disk
        self._root = root
        self._clock = clock
        self._slots = slots
        self._entries = entries
        self._files: list[IndexFile] = []
        self._pending = bytearray()  # hashed keys, in the order of the log
        self.position = 0
        self.dropped: list[str] = []
        # After a crash of RocketMQ's broker its newest record may be indexed under some of its keys only.
        self._in_doubt = -1

    def load_ours(self, state: IndexState) -> bool:
        """Open the files that the recovery point names and remove others; False when one is missing or damaged."""
        for name in self._names():
            path = f"{filenames.index(self._root)}/{name}"
            if not state.first <= name <= state.newest:
                self._disk.unlink(path)
                continue
            file = IndexFile(path, self._slots, self._entries)
            self._files.append(file)
            try:
                file.load(self._disk)
            except StoreError:
                return False
            if file.is_empty or (name == state.newest and not file.step_back(state.following)):
                return False
        return len(self._files) == state.files

    def load_foreign(self, keep_until_ms: int | None) -> None:
        """Open a folder of RocketMQ's; after a crash of its broker files with newer records go, as it does itself."""
        for name in self._names():
            file = IndexFile(f"{filenames.index(self._root)}/{name}", self._slots, self._entries)
            file.load(self._disk)
            if file.is_empty or (keep_until_ms is not None and file.end_ms > keep_until_ms):
                file.close()
                self._disk.unlink(file.path)
            else:
                self._files.append(file)
        if keep_until_ms is not None:
            self._in_doubt = self.end_log

    def read_slots(self) -> Iterator[None]:
        """Have what adding entries looks at in memory, in steps: slots of the newest file."""
        for file in self._files[-1:]:
            if not file.is_full:
                yield from file.read_slots()

    def _names(self) -> list[str]:
        return [name for name in self._disk.list(filenames.index(self._root)) if filenames.is_index_file(name)]

    @property
    def state(self) -> IndexState:
        """The files, for the recovery point."""
        if not self._files:
            return IndexState()
        first, newest = (file.path.rsplit("/", 1)[1] for file in (self._files[0], self._files[-1]))
        return IndexState(first, newest, len(self._files), self._files[-1].count)

    @property
    def end_log(self) -> int:
        """The newest record that headers know; where a foreign store's index ends."""
        return max((file.end_log for file in self._files), default=-1)

    @property
    def stored_ms(self) -> int:
        """Store time of the newest record in the files."""
        return self._files[-1].end_ms if self._files else 0

    @property
    def first_pending(self) -> int | None:
        """Log offset of the first record whose keys wait to be absorbed."""
        return self._waiting(0) if self._pending else None

    def _waiting(self, number: int) -> int:
        """The log offset of a waiting key."""
        log_offset: int = keys.FOUND.unpack_from(self._pending, number * keys.FOUND_BYTES)[1]
        return log_offset

    def add(self, entries: list[records.Entry]) -> None:
        """Take dispatched records, in the order of the log; those below position are in already."""
        if entries and entries[0].log_offset < self.position:
            entries = [entry for entry in entries if entry.log_offset >= self.position]
        self._pending += keys.hashed(entries)

    def absorb(self, flushed: int) -> None:
        """Move one slice of waiting keys whose records are flushed into the newest file."""
        if not self._pending or self._waiting(0) >= flushed:
            return
        count = len(self._pending) // keys.FOUND_BYTES
        count = min(count, _SLICE_KEYS + count // _SLICES_MAX)
        # A mark stands between records: what begins below it is flushed.
        if self._waiting(count - 1) >= flushed:
            count = bisect_left(range(count), flushed, key=self._waiting)
        found = self._pending[: count * keys.FOUND_BYTES]
        del self._pending[: count * keys.FOUND_BYTES]
        _, log_offset, _ = keys.FOUND.unpack_from(found, len(found) - keys.FOUND_BYTES)
        self.position = log_offset + 1
        if self._in_doubt >= 0:
            found = self._undoubted(found)
        while found:
            file = self._writable(keys.FOUND.unpack_from(found)[2])
            room = file.room * keys.FOUND_BYTES
            file.put(found[:room])
            del found[:room]

    def _undoubted(self, found: bytearray) -> bytearray:
        """Without the keys that the record in doubt is already found by."""
        fresh = bytearray()
        for hashed in keys.FOUND.iter_unpack(found):
            if hashed[1] != self._in_doubt or not self._has(*hashed):
                fresh += keys.FOUND.pack(*hashed)
        return fresh

    def _has(self, key_hash: int, log_offset: int, store_ms: int) -> bool:
        hits = (hit for file in self._files[-1:] for hit in file.find(key_hash, store_ms - 1000, store_ms))
        return any(isinstance(hit, Hit) and hit.log_offset == log_offset for hit in hits)

    def absorb_all(self, flushed: int) -> None:
        """All slices; only while a store opens or closes."""
        before = -1
        while len(self._pending) != before:
            before = len(self._pending)
            self.absorb(flushed)

    @property
    def tail_bytes(self) -> int:
        """Memory held by what the files lack."""
        return len(self._pending) + sum(file.tail_bytes for file in self._files)

    def _writable(self, store_ms: int) -> IndexFile:
        if not self._files or self._files[-1].is_full:
            last = self._files[-1].path if self._files else ""
            path = filenames.index_file(self._root, max(self._clock.now_ms(), store_ms))
            if path <= last:
                # The clock went back, or the folder comes from another time zone.  Only the order of names counts.
                path = filenames.index_file_after(last)
            self._files.append(IndexFile(path, self._slots, self._entries))
        return self._files[-1]

    def freeze(self) -> list[tuple[IndexFile, IndexWrites]]:
        """Return what a checkpoint has to write, by index file; readable here until `thaw`."""
        return [(file, writes) for file in self._files if (writes := file.freeze()) is not None]

    def thaw(self, written: list[tuple[IndexFile, IndexWrites]]) -> None:
        """Take what a checkpoint has written out of memory."""
        for file, writes in written:
            file.thaw(writes, self._disk)

    def walk(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Hit | ColdRange | None]:
        """Candidates, newest first; hashes collide, so the caller compares the records.

        Yields None after every WALKED_AT_ONCE entries examined, and what it will look at if that is not in memory.
        Others may have the loop in between: what is dispatched meanwhile is not found, and what is deleted may be.
        """
        key_hash = keys.hash_of(topic, key.encode())
        waiting = keys.matches(self._pending, key_hash, begin_ms, end_ms, len(self._pending))
        files = self._files[::-1]
        for log_offset, store_ms in waiting:
            yield Hit(log_offset, store_ms)
        for file in files:
            if file.overlaps(begin_ms, end_ms):
                yield from file.find(key_hash, begin_ms, end_ms)
            if file.begin_ms < begin_ms:
                return

    def drop_before(self, log_start: int) -> None:
        """Forget files whose records are all gone; the last one stays.  A checkpoint unlinks them."""
        while len(self._files) > 1 and self._files[0].end_log < log_start:
            file = self._files.pop(0)
            file.close()
            self.dropped.append(file.path)

    def destroy(self) -> None:
        """Remove all files: the index is built again from the log."""
        for file in self._files:
            file.close()
        for name in self._names():
            self._disk.unlink(f"{filenames.index(self._root)}/{name}")
        self._files = []
        self._pending = bytearray()
        self.position = 0

    def close(self) -> None:
        """Close all index files."""
        for file in self._files:
            file.close()


def write_indexes(disk: Disk, root: str, batch: list[IndexWrites]) -> None:
    """Write into the index files, and make their folder if it is missing; the housekeeper's job."""
    if batch and not disk.exists(filenames.index(root)):
        disk.make_folders(filenames.index(root))
    for writes in batch:
        write_index(disk, root, writes)
