"""The key index, batch-wise: under which hashes records are found, and linking entries for them into slots.

    found   key hash i32, log offset i64, store time in ms i64: one key of one record, not yet linked  (big-endian)
    entry   key hash i32, log offset i64, seconds since begin i32, number of the previous entry i32
    slot    i32, the number of the newest entry whose hash falls into this slot, 0 for none

A record is found by its unique key and by each word of its KEYS, up to KEYS_MAX; the hash is of `topic#key`.  Slots are
reached by pages of 1024, which are all that `link` changes; the entries that it makes are given back, numbered from
`count` on.
Source: RocketMQ's `IndexFile` and `IndexService`; `gantry.store.indexfile` has the file around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from struct import Struct

from gantry.leaves.hashes import index_hash
from gantry.leaves.stored import Entry

ENTRY_BYTES = 20
SLOTS_PER_PAGE = 1024

FOUND = Struct(">iqq")
FOUND_BYTES = FOUND.size
ENTRY = Struct(">iqii")
SLOT = Struct(">i")

# sysFlag of a rolled-back transaction, the only records without index entries.
_ROLLBACK = 0xC
_SECONDS_MAX = 0x7FFFFFFF
# Keys of one record that get an entry, 10 KB of index at most; RocketMQ has no bound but that of the properties.
KEYS_MAX = 512


def keys_of(entry: Entry) -> list[bytes]:
    """The keys under which a record is found, in RocketMQ's order (the order decides entry numbers)."""
    if entry.sys_flag & _ROLLBACK == _ROLLBACK:
        return []
    keys = [entry.unique_key] if entry.unique_key else []
    if entry.keys:
        keys += [key for key in entry.keys.split(b" ") if key]
    return keys


def hash_of(topic: str, key: bytes) -> int:
    """The hash of a key of this topic's messages, between 0 and 2**31 - 1."""
    return index_hash(topic.encode() + b"#" + key)


def hashed(entries: Iterable[Entry]) -> bytes:
    """Every key of these records, in their order, packed as `found`.

    A hash stands once for each record, because a second entry would find nothing else; at most KEYS_MAX a record.
    """
    pack = FOUND.pack
    return b"".join(
        [
            pack(key_hash, entry.log_offset, entry.store_ms)
            for entry in entries
            for key_hash in islice(dict.fromkeys(hash_of(entry.topic, key) for key in keys_of(entry)), KEYS_MAX)
        ]
    )


def matches(
    found: bytes | bytearray, key_hash: int, begin_ms: int, end_ms: int, count_max: int
) -> list[tuple[int, int]]:
    """Of packed `found` keys those with this hash, stored within [begin_ms, end_ms]: (log offset, ms), newest first."""
    hits = [
        (log_offset, store_ms)
        for value, log_offset, store_ms in FOUND.iter_unpack(found)
        if value == key_hash and begin_ms <= store_ms <= end_ms
    ]
    return hits[: -count_max - 1 : -1]


def link(
    found: bytes | bytearray,
    begin_ms: int,
    count: int,
    slots: int,
    pages: Mapping[int, bytearray],
    older: Callable[[int, int], int],
) -> tuple[bytes, int]:
    """Give these keys the entry numbers from `count` on: (the packed entries, how many slots were empty before).

    `pages[n]` holds the slots from 1024 * n on, of `slots` in all, and is changed in place.  A slot may name an entry
    that does not count (a crash left it): `older(number, count)` is the newest one before it that does.
    """
    entries = bytearray()
    fresh = 0
    for key_hash, log_offset, store_ms in FOUND.iter_unpack(found):
        slot = key_hash % slots
        page, at = pages[slot // SLOTS_PER_PAGE], slot % SLOTS_PER_PAGE * SLOT.size
        (previous,) = SLOT.unpack_from(page, at)
        if previous >= count:
            previous = older(previous, count)
        previous = max(previous, 0)
        fresh += previous == 0
        seconds = min(max((store_ms - begin_ms) // 1000, 0), _SECONDS_MAX) if begin_ms > 0 else 0
        entries += ENTRY.pack(key_hash, log_offset, seconds, previous)
        SLOT.pack_into(page, at, count)
        count += 1
    return bytes(entries), fresh
