"""The sizes that a folder was made with: settings only say what a new folder gets.

Where our broker wrote last, its recovery point says them: a file that is shorter is damaged, and built again.
Otherwise they are taken from the files:

    segment        the first file of the log
    queue file     the first file of any queue
    index          slots and entries make one size together.  What the settings say is tried, what our recovery point
                   says, and four entries for each slot, as RocketMQ has it.  Where several make this size, the newest
                   entry of the file is the head of its slot

Files that contradict each other are found when the store is opened, and refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct

from gantry.errors import StoreError
from gantry.store import filenames, javacheckpoint, recoverypoint
from gantry.store.disk import Disk, File
from gantry.store.indexfile import ENTRY_BYTES, HEADER_BYTES
from gantry.store.javacheckpoint import JavaCheckpoint
from gantry.store.queuefiles import ENTRY_BYTES as QUEUE_ENTRY_BYTES
from gantry.store.recoverypoint import RecoveryPoint
from gantry.store.settings import StoreSettings

_PAGE_BYTES = 4096
_COUNT_AT = HEADER_BYTES - 4
_NUMBER = Struct(">i")


def of_folder(disk: Disk, settings: StoreSettings) -> StoreSettings:
    """Return the settings with the sizes that the folder has.

    StoreError: an index file fits neither these settings nor RocketMQ's proportions.
    """
    root = settings.root
    point = recoverypoint.load(disk, root)
    if point is not None and point.is_last_word((javacheckpoint.load(disk, root) or JavaCheckpoint()).longs):
        segment, queue_entries, slots, entries = point.sizes
        return replace(
            settings, segment_bytes=segment, queue_file_entries=queue_entries, index_slots=slots, index_entries=entries
        )
    segment = _first_size(disk, (filenames.commit_log(root),))
    if segment and segment % _PAGE_BYTES == 0:
        settings = replace(settings, segment_bytes=segment)
    queue_file = _first_size(disk, _queue_folders(disk, root))
    if queue_file and queue_file % QUEUE_ENTRY_BYTES == 0:
        settings = replace(settings, queue_file_entries=queue_file // QUEUE_ENTRY_BYTES)
    return _with_index(disk, settings, point)


def _queue_folders(disk: Disk, root: str) -> Iterator[str]:
    for topic in disk.list(filenames.consume_queues(root)):
        for queue_id in disk.list(filenames.topic_queues(root, topic)):
            yield f"{filenames.topic_queues(root, topic)}/{queue_id}"


def _first_size(disk: Disk, folders: tuple[str, ...] | Iterator[str]) -> int:
    """The size of the first file named by an offset that is not empty; 0 when there is none."""
    for folder in folders:
        for name in disk.list(folder):
            if filenames.parse_offset(name) is not None:
                file = disk.open(f"{folder}/{name}", create=False)
                size = file.size()
                file.close()
                if size:
                    return size
    return 0


def _with_index(disk: Disk, settings: StoreSettings, point: RecoveryPoint | None) -> StoreSettings:
    root = settings.root
    names = [name for name in disk.list(filenames.index(root)) if filenames.is_index_file(name)]
    if not names:
        return settings
    path = f"{filenames.index(root)}/{names[0]}"
    file = disk.open(path, create=False)
    try:
        size = file.size()
        slots = max((size - HEADER_BYTES) // (4 + 4 * ENTRY_BYTES), 1)
        ours = [point.sizes[2:]] if point else []
        known = [(settings.index_slots, settings.index_entries), *ours, (slots, 4 * slots)]
        found = [one for one in dict.fromkeys(known) if HEADER_BYTES + 4 * one[0] + ENTRY_BYTES * one[1] == size]
        best = next((one for one in found if len(found) == 1 or _fits(file, *one)), None)
    finally:
        file.close()
    if best is not None or size == 0:
        slots, entries = best or known[0]
        return replace(settings, index_slots=slots, index_entries=entries)
    raise StoreError(
        f"index file {path} has {size} bytes, expected {settings.index_file_bytes} for {settings.index_slots} slots "
        f"and {settings.index_entries} entries; set store.index_slots and store.index_entries (maxHashSlotNum and "
        "maxIndexNum in a broker.conf) to what it was written with, or remove the folder index to have it built again"
    )


def _fits(file: File, slots: int, entries: int) -> bool:
    """Whether the newest entry is the head of its slot."""
    (following,) = _NUMBER.unpack(file.pread(4, _COUNT_AT))
    newest = following - 1
    if not 0 < newest < entries:
        return bool(newest == 0)
    at = HEADER_BYTES + 4 * slots + ENTRY_BYTES * newest
    (key_hash,) = _NUMBER.unpack(file.pread(4, at))
    (head,) = _NUMBER.unpack(file.pread(4, HEADER_BYTES + 4 * (key_hash % slots)))
    return bool(head == newest)
