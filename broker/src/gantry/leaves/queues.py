"""Entries of a consume queue: twenty bytes with a message's place in the log and the hash of its tag.

    log offset i64 | size i32 | tags code i64

The number of an entry in its queue is the message's queue offset.  An entry is valid when its log offset is not
negative and its size is positive; the unwritten tail of a file is zeros, which is not valid.  A queue whose first
entry has a number above 0 begins with *pre-blank* entries (size 2**31 - 1): valid, but no messages.  Source:
RocketMQ's `ConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from gantry.leaves.requests import Send
from gantry.leaves.stored import Entry

ENTRY_BYTES = 20
PRE_BLANK_SIZE = 0x7FFFFFFF

_ENTRY = Struct(">qiq")


def pack_entries(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """The bytes of these (log offset, size, tags code)."""
    pack = _ENTRY.pack
    return b"".join([pack(log_offset, size, tags_code) for log_offset, size, tags_code in entries])


Arrivals = tuple[str, int, list[Entry], bytes, int]
"""(topic, queue id, records, their packed entries): what a stretch of log holds for one queue."""

# sysFlag of RocketMQ 3.2.6's PREPARED (4) and ROLLBACK (12): no queue gets these records; COMMIT is 8.  They come with
# folders and from masters, and this broker makes none.
NO_QUEUE_BIT = 0x4


def by_queue(entries: Iterable[Entry]) -> list[Arrivals]:
    """Records of the log by the queue they belong to, queues in the order of their first record.

    The packed entries are there where the queue offsets follow each other without a gap, which they do unless
    something was lost; else they are empty, and the caller looks at each record.  Last, their bytes.
    """
    groups: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if not entry.sys_flag & NO_QUEUE_BIT:
            groups.setdefault((entry.topic, entry.queue_id), []).append(entry)
    return [
        (topic, queue_id, group, _packed(group), sum([entry.size for entry in group]))
        for (topic, queue_id), group in groups.items()
    ]


def _packed(group: list[Entry]) -> bytes:
    first = group[0].queue_offset
    if any(entry.queue_offset != first + number for number, entry in enumerate(group)):
        return b""
    return pack_entries([(entry.log_offset, entry.size, entry.tags_code) for entry in group])


def number(sends: Iterable[Send], heads: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Give each message the next offset of its queue; `heads` has the next one of each (topic, queue id), or nothing.

    Gives back the heads that follow: `heads` changes only when the messages are really written.
    """
    given: dict[tuple[str, int], int] = {}
    for send in sends:
        assert not send.sys_flag & NO_QUEUE_BIT, "a message that no queue shows would be acknowledged and lost"
        key = (send.topic, send.queue_id)
        offset = given.get(key)
        if offset is None:
            offset = heads.get(key, 0)
        send.queue_offset = offset
        given[key] = offset + 1
    return given


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


class Places(list[tuple[int, int]]):
    """(log offset, bytes) of records, or of stretches of them, in the order in which they are to be delivered."""

    @property
    def total(self) -> int:
        """Return the sum of the sizes of all places, in bytes."""
        return sum([size for _, size in self])

    def within(self, start: int, end: int, segment_bytes: int) -> int:
        """How many places from the first on lie in [start, end) of the log, each in one segment; 0 <= start."""
        for number, (log_offset, size) in enumerate(self):
            if log_offset < start or size > end - log_offset or log_offset % segment_bytes + size > segment_bytes:
                return number
        return len(self)

    def stretches(self) -> Places:
        """The same places, neighbours as one."""
        joined = Places()
        begun = used = 0
        for log_offset, size in self:
            if used and log_offset == begun + used:
                used += size
                continue
            if used:
                joined.append((begun, used))
            begun, used = log_offset, size
        if used:
            joined.append((begun, used))
        return joined

    def gather(self, memory: bytes | bytearray | memoryview, base: int) -> bytes:
        """The bytes at these places one after the other; memory[0] is log offset `base`.

        ValueError: they are not all in there.
        """
        if any(not 0 <= at - base <= at - base + size <= len(memory) for at, size in self):
            raise ValueError(f"queues: places outside of {len(memory)} bytes from {base} on")
        with memoryview(memory) as view:
            return b"".join([view[at - base : at - base + size] for at, size in self])


def select(
    buffer: bytes | bytearray | memoryview,
    start: int,
    count: int,
    codes: frozenset[int] | None,
    count_max: int,
    bytes_max: int,
) -> tuple[Places, int]:
    """Of the `count` entries from `start` on, the places of those to deliver, and how many were examined.

    Stops before the entry that would be one message more than `count_max` or would make more than `bytes_max` bytes
    (the first match is taken whatever its size, so that a consumer always gets on), and before an invalid entry.
    `codes` are the wanted tags codes as signed 32-bit numbers, of which an entry's low 32 bits have to be one; None
    means all.
    """
    chosen = Places()
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
