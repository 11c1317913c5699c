"""Entries of a consume queue: twenty bytes that say where a message stands and what its tag hashes to.

    log offset i64 | size i32 | tags code i64

The number of an entry in its queue is the message's queue offset.  An entry is valid when its log offset is not
negative and its size is positive; the unwritten tail of a file is zeros, which is not valid.  A queue whose first
entry has a number above 0 begins with *pre-blank* entries (size 2**31 - 1): valid, but no messages.  Source:
RocketMQ's `ConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

ENTRY_BYTES = 20
PRE_BLANK_SIZE = 0x7FFFFFFF

_ENTRY = Struct(">qiq")


def pack_entries(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """The bytes of these (log offset, size, tags code)."""
    pack = _ENTRY.pack
    return b"".join([pack(log_offset, size, tags_code) for log_offset, size, tags_code in entries])


def unpack(buffer: bytes | bytearray | memoryview, at: int) -> tuple[int, int, int]:
    """(log offset, size, tags code) of the entry at buffer[at]."""
    log_offset, size, tags_code = _ENTRY.unpack_from(buffer, at)
    return log_offset, size, tags_code


def valid_count(buffer: bytes | bytearray | memoryview, start: int, end: int) -> int:
    """How many whole entries from `start` on are valid, up to the first that is not or the end of the range."""
    count = max(end - start, 0) // ENTRY_BYTES
    unpack_from = _ENTRY.unpack_from
    for number in range(count):
        log_offset, size, _ = unpack_from(buffer, start + number * ENTRY_BYTES)
        if log_offset < 0 or size <= 0:
            return number
    return count


def select(
    buffer: bytes | bytearray | memoryview,
    start: int,
    count: int,
    codes: frozenset[int] | None,
    count_max: int,
    bytes_max: int,
) -> tuple[list[tuple[int, int]], int]:
    """Of the `count` entries from `start` on, those to deliver as (log offset, size), and how many were examined.

    Stops before the entry that would be one message more than `count_max` or would make more than `bytes_max` bytes
    (the first match is taken whatever its size, so that a consumer always gets on), and before an invalid entry.
    `codes` are the wanted tags codes as signed 32-bit numbers, of which an entry's low 32 bits have to be one; None
    means all.
    """
    chosen: list[tuple[int, int]] = []
    total = 0
    examined = 0
    unpack_from = _ENTRY.unpack_from
    count = min(count, (len(buffer) - start) // ENTRY_BYTES)
    while examined < count and len(chosen) < count_max:
        log_offset, size, tags_code = unpack_from(buffer, start + examined * ENTRY_BYTES)
        if log_offset < 0 or size <= 0:
            break
        if size != PRE_BLANK_SIZE and (codes is None or _low_32(tags_code) in codes):
            total += size
            if chosen and total > bytes_max:
                break
            chosen.append((log_offset, size))
        examined += 1
    return chosen, examined


def _low_32(code: int) -> int:
    """The low 32 bits as a signed number: what Java's `Long.intValue` makes of a tags code."""
    return ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000
