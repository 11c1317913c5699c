"""Records of the commit log: encoding a run of them, walking a range of them, reading one.

    at 0   total size i32       what the whole record takes
       4   magic i32            V1, V2 (topic longer than 127 bytes) or BLANK (filler at a segment's end)
       8   body crc i32         crc31 of the body
      12   queue id i32
      16   user flag i32
      20   queue offset i64
      28   log offset i64       where this record stands: a record that stands elsewhere is not one
      36   sys flag i32         0x10: born host is IPv6, 0x20: store host is IPv6
      40   born time i64        the client's clock, ms
      48   born host            4 or 16 bytes and port i32
           store time i64       the broker's clock, ms
           store host           4 or 16 bytes and port i32
           reconsume times i32, prepared offset i64
           body i32 + bytes, topic u8 (V2: i16) + bytes, properties i16 + bytes

Everything is big-endian; `broker/docs/record-format.md` has it with a worked record.  Source: RocketMQ's
`MessageExtEncoder` and `CommitLog.checkMessageAndReturnSize`.

`walk` reads a part of the log that may be damaged: it takes a record only when the lengths inside add up to its size
exactly, never reads outside its range, and never raises.  `view` reads one record that is known to begin there and
raises when it is not a good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

from gantry.errors import CorruptRecordError
from gantry.leaves.hashes import crc31
from gantry.leaves.properties import pick, scan
from gantry.leaves.requests import Send
from gantry.leaves.stored import Entry, Record
from gantry.leaves.zerosectors import is_doubtful

__all__ = [
    "BLANK_BYTES_MIN",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "PROPERTIES_BYTES_MAX",
    "RECORD_BYTES_MIN",
    "SYS_BORN_HOST_V6",
    "SYS_STORE_HOST_V6",
    "SYS_TRANSACTION_BITS",
    "Entry",
    "MalformedBatchError",
    "Record",
    "encode_blank",
    "encode_run",
    "named",
    "offset_message_id",
    "parse_offset_message_id",
    "run_bytes",
    "size_of",
    "split_batch",
    "view",
    "walk",
    "whole",
]

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124

RECORD_BYTES_MIN = 91
"""A V1 record with IPv4 hosts and nothing in it; a topic is never empty, so real ones are longer."""
BLANK_BYTES_MIN = 8
PROPERTIES_BYTES_MAX = 32767

SYS_TRANSACTION_BITS = 0xC  # 0 none, 4 prepared, 8 committed, 12 rolled back
SYS_BORN_HOST_V6 = 0x10
SYS_STORE_HOST_V6 = 0x20
_SYS_HOSTS_V6 = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6
_HOST_BYTES_V4, _HOST_BYTES_V6 = 8, 20
_V1_TOPIC_BYTES_MAX = 127

# All up to the body, by the two host bits of the sys flag: 0 both IPv4, 1 IPv6 born, 2 IPv6 store, 3 both IPv6.
_HEADS = tuple(Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
_PAIR = Struct(">ii")
_SHORT = Struct(">h")
_OFFSET = Struct(">q")
_BATCH_HEAD = Struct(">iiiii")  # total size, magic, crc, flag, body length
_BATCH_BYTES_MIN = _BATCH_HEAD.size + _SHORT.size


class MalformedBatchError(ValueError):
    """The body of a batch does not read as messages one after the other."""


def size_of(send: Send, store_host_bytes: int = _HOST_BYTES_V4) -> int:
    """How many bytes the record of this message will take."""
    topic_bytes = len(send.topic.encode())
    size = RECORD_BYTES_MIN + len(send.body) + topic_bytes + len(send.properties)
    if topic_bytes > _V1_TOPIC_BYTES_MAX:
        size += 1
    if len(send.born_host) == _HOST_BYTES_V6:
        size += _HOST_BYTES_V6 - _HOST_BYTES_V4
    return size + store_host_bytes - _HOST_BYTES_V4


def run_bytes(sends: Iterable[Send], store_host_bytes: int = _HOST_BYTES_V4) -> int:
    """How many bytes their records will take together; OverflowError for properties that no record can hold, ValueError
    for those that a start would take for torn.
    """
    total = 0
    for send in sends:
        if len(send.properties) > PROPERTIES_BYTES_MAX:
            raise OverflowError(f"properties of {len(send.properties)} bytes, a record holds {PROPERTIES_BYTES_MAX}")
        if is_doubtful(send.properties):
            raise ValueError("properties with a sector of zeros and without their checksum")
        total += size_of(send, store_host_bytes)
    return total


def encode_run(
    out: bytearray, at: int, log_offset: int, sends: Iterable[Send], store_ms: int, store_host: bytes
) -> int:
    """Write the records of these messages one after the other into out[at:]; returns the place behind the last one.

    `log_offset` is where the first record will stand in the log.  `queue_offset` and `born_host` have to be set; sets
    `log_offset` and `size`.  The host bits of the sys flag follow the addresses, whatever the client said.  `out` must
    have room (`size_of`) and keeps its length; every byte of the run is written.
    """
    assert len(store_host) in (_HOST_BYTES_V4, _HOST_BYTES_V6)
    store_bit = SYS_STORE_HOST_V6 if len(store_host) == _HOST_BYTES_V6 else 0
    shift = log_offset - at
    for send in sends:
        topic, body, properties, born_host = send.topic.encode(), send.body, send.properties, send.born_host
        assert len(born_host) in (_HOST_BYTES_V4, _HOST_BYTES_V6), "born_host is set before a message is stored"
        assert topic and len(properties) <= PROPERTIES_BYTES_MAX, "admission refuses what a record cannot hold"
        hosts = store_bit | SYS_BORN_HOST_V6 if len(born_host) == _HOST_BYTES_V6 else store_bit
        head = _HEADS[hosts >> 4]
        topic_at = at + head.size + len(body) + 1
        magic = MAGIC_V1
        if len(topic) > _V1_TOPIC_BYTES_MAX:
            topic_at += 1
            magic = MAGIC_V2
        properties_at = topic_at + len(topic) + 2
        stop = properties_at + len(properties)
        assert stop <= len(out), "the encode buffer has room for the run"
        send.log_offset = at + shift
        send.size = stop - at
        head.pack_into(
            out,
            at,
            stop - at,
            magic,
            crc31(body),
            send.queue_id,
            send.flag,
            send.queue_offset,
            at + shift,
            send.sys_flag & ~_SYS_HOSTS_V6 | hosts,
            send.born_ms,
            born_host,
            store_ms,
            store_host,
            send.reconsume_times,
            send.prepared_offset,
            len(body),
        )
        body_at = at + head.size
        out[body_at : body_at + len(body)] = body
        if magic == MAGIC_V1:
            out[topic_at - 1] = len(topic)
        else:
            _SHORT.pack_into(out, topic_at - 2, len(topic))
        out[topic_at : topic_at + len(topic)] = topic
        _SHORT.pack_into(out, properties_at - 2, len(properties))
        out[properties_at:stop] = properties
        at = stop
    return at


def encode_blank(out: bytearray, at: int, size: int) -> None:
    """Write the filler of a segment's last `size` bytes: its two numbers; what stands behind them is never read."""
    assert size >= BLANK_BYTES_MIN
    _PAIR.pack_into(out, at, size, MAGIC_BLANK)


def walk(
    buffer: bytes | bytearray | memoryview,
    start: int,
    end: int,
    log_offset: int,
    check_crc: bool,
    count_max: int = 2**31,
) -> tuple[list[Entry], int, str]:
    """The records from buffer[start] on, the position behind the last good one, and why the walk stopped there:

    "end"      less than a record's first eight bytes is left
    "blank"    a segment's filler stands there
    "zero"     nothing was ever written there: eight zero bytes
    "more"     `count_max` records are taken
    "bad: ..." what stands there is not a record, and why

    `log_offset` is where buffer[start] stands in the log.  A range that ends inside a record is bad there.
    """
    entries: list[Entry] = []
    topics: dict[bytes, str] = {}
    at = start
    with memoryview(buffer) as memory:
        while len(entries) < count_max:
            if end - at < _PAIR.size:
                return entries, at, "end"
            size, magic = _PAIR.unpack_from(memory, at)
            if magic == MAGIC_BLANK and BLANK_BYTES_MIN <= size <= end - at:
                return entries, at, "blank"
            if size == 0 and magic == 0:
                return entries, at, "zero"
            read = _read(memory, at, end, check_crc)
            if isinstance(read, str):
                return entries, at, f"bad: record at {log_offset + at - start} {read}"
            fields, _, topic_at, topic_end, properties_at = read
            if fields[6] != log_offset + at - start:
                return entries, at, f"bad: record at {log_offset + at - start} says it stands at {fields[6]}"
            raw_topic = bytes(memory[topic_at:topic_end])
            topic = topics.get(raw_topic)
            if topic is None:
                try:
                    topic = topics[raw_topic] = raw_topic.decode()
                except UnicodeDecodeError:
                    return entries, at, f"bad: record at {log_offset + at - start} has a topic that is not UTF-8"
            properties = bytes(memory[properties_at : at + size])
            _, unique_key, keys, tags_code = scan(properties)
            entries.append(
                Entry(
                    fields[6],
                    size,
                    topic,
                    fields[3],
                    fields[5],
                    tags_code,
                    fields[10],
                    fields[7],
                    fields[13],
                    unique_key,
                    keys,
                    properties,
                    fields[8],
                )
            )
            at += size
    return entries, at, "more"


def whole(
    buffer: bytes | bytearray | memoryview, start: int, end: int, bytes_max: int
) -> tuple[int, str]:
    """Where the records from buffer[start] on end, by nothing but their sizes, and why there:

    ""         at `end`, or before the record that would make them longer than `bytes_max`; the first always is
    "blank"    a segment's filler stands there
    "bad"      what stands there is no record, or not all of it below `end`
    """
    at = start
    while at < end:
        if end - at < _PAIR.size:
            return at, "bad"
        size, magic = _PAIR.unpack_from(buffer, at)
        if magic == MAGIC_BLANK:
            return at, "blank"
        if not RECORD_BYTES_MIN <= size <= end - at:
            return at, "bad"
        if at > start and at + size - start > bytes_max:
            break
        at += size
    return at, ""


def view(buffer: bytes | bytearray | memoryview, at: int, end: int, check_crc: bool = False) -> Record:
    """The record that begins at buffer[at] and ends at `end` or before; CorruptRecordError when none does."""
    with memoryview(buffer) as memory:
        read = _read(memory, at, end, check_crc)
        if isinstance(read, str):
            raise CorruptRecordError(f"record at byte {at} {read}")
        fields, body_at, topic_at, topic_end, properties_at = read
        try:
            topic = str(memory[topic_at:topic_end], "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"record at byte {at} has a topic that is not UTF-8") from error
        body = bytes(memory[body_at : body_at + fields[14]])
        return Record(*(*fields[:14], body, topic, bytes(memory[properties_at : at + fields[0]])))


def named(
    buffer: bytes | bytearray | memoryview, log_start: int, places: Sequence[tuple[int, int]], names: tuple[bytes, ...]
) -> list[list[bytes | None] | None]:
    """Of the records at these (log offset, size) the values of the properties with these names, bodies untouched.

    buffer[0] stands at `log_start` in the log.  Where no record of that size lies in the buffer there is None.
    """
    values: list[list[bytes | None] | None] = []
    with memoryview(buffer) as memory:
        for log_offset, size in places:
            at = log_offset - log_start
            read = _read(memory, at, at + size, False) if 0 <= at <= len(memory) - size else "lies elsewhere"
            if isinstance(read, str) or read[0][0] != size:
                values.append(None)
            else:
                values.append(pick(bytes(memory[read[4] : at + size]), names))
    return values


def offset_message_id(store_host: bytes, log_offset: int) -> str:
    """The id that names a broker's address and a log offset, in hex: 32 characters, with an IPv6 address 56."""
    return (store_host + _OFFSET.pack(log_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """(address, port, log offset) of an offset message id; ValueError when it is none."""
    if len(text) not in (32, 56) or not text.isascii() or not text.isalnum():
        raise ValueError(f"message id of {len(text)} characters, expected 32 or 56 hex digits")
    raw = bytes.fromhex(text)
    port, offset = Struct(">iq").unpack_from(raw, len(raw) - 12)
    address = raw[:-12]
    if len(address) == 4:
        return ".".join(str(part) for part in address), port, offset
    groups = Struct(">8H").unpack(address)
    return ":".join(f"{group:x}" for group in groups), port, offset


def split_batch(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """The messages in a batch's body, each as (user flag, body, properties); MalformedBatchError when it is no batch.

    Every message names its whole size, which has to be what its parts add up to; there is at least one.
    """
    messages: list[tuple[int, bytes, bytes]] = []
    at = 0
    while at < len(body):
        left = len(body) - at
        if left < _BATCH_BYTES_MIN:
            raise MalformedBatchError(
                f"batch message {len(messages)}: {left} bytes left, the least is {_BATCH_BYTES_MIN}"
            )
        size, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(body, at)
        if not _BATCH_BYTES_MIN <= size <= left:
            raise MalformedBatchError(f"batch message {len(messages)} claims {size} bytes, {left} left")
        if not 0 <= body_bytes <= size - _BATCH_BYTES_MIN:
            raise MalformedBatchError(f"batch message {len(messages)} of {size} bytes claims a body of {body_bytes}")
        body_at = at + _BATCH_HEAD.size
        properties_at = body_at + body_bytes + _SHORT.size
        (properties_bytes,) = _SHORT.unpack_from(body, properties_at - _SHORT.size)
        if properties_at + properties_bytes != at + size:
            raise MalformedBatchError(
                f"batch message {len(messages)} of {size} bytes claims {properties_bytes} bytes of properties, "
                f"{at + size - properties_at} left"
            )
        messages.append((flag, body[body_at : body_at + body_bytes], body[properties_at : at + size]))
        at += size
    if not messages:
        raise MalformedBatchError("a batch without messages")
    return messages


def _read(memory: memoryview, at: int, end: int, check_crc: bool) -> str | tuple[tuple[Any, ...], int, int, int, int]:
    """(the fifteen fields before the body, where body and topic begin, where the topic ends, where properties begin),
    or what is wrong.  Everything that is read lies below the size that the record claims, and that below `end`."""
    if end - at < RECORD_BYTES_MIN:
        return f"has {end - at} bytes before the end, the least is {RECORD_BYTES_MIN}"
    fields = _HEADS[0].unpack_from(memory, at)
    size, magic, sys_flag = fields[0], fields[1], fields[7]
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"has the magic {magic & 0xFFFFFFFF:#010x}"
    if not RECORD_BYTES_MIN <= size <= end - at:
        return f"claims {size} bytes, {end - at} left"
    stop = at + size
    body_at = at + _HEADS[0].size
    if sys_flag & _SYS_HOSTS_V6:
        head = _HEADS[sys_flag >> 4 & 3]
        body_at = at + head.size
        if body_at > stop:
            return f"of {size} bytes has no room for its IPv6 hosts"
        fields = head.unpack_from(memory, at)
    topic_at = body_at + fields[14] + (1 if magic == MAGIC_V1 else 2)
    if fields[14] < 0 or topic_at > stop:
        return f"of {size} bytes claims a body of {fields[14]}"
    topic_bytes = memory[topic_at - 1] if magic == MAGIC_V1 else _SHORT.unpack_from(memory, topic_at - 2)[0]
    topic_end = topic_at + topic_bytes
    if topic_bytes <= 0 or (magic == MAGIC_V1 and topic_bytes > _V1_TOPIC_BYTES_MAX) or topic_end + 2 > stop:
        return f"of {size} bytes claims a topic of {topic_bytes}"
    (properties_bytes,) = _SHORT.unpack_from(memory, topic_end)
    if topic_end + 2 + properties_bytes != stop:
        return f"of {size} bytes claims properties of {properties_bytes}, {stop - topic_end - 2} left"
    if fields[3] < 0 or fields[5] < 0:
        return f"claims queue {fields[3]}, queue offset {fields[5]}"
    if check_crc and fields[14] and crc31(memory[body_at : body_at + fields[14]]) != fields[2]:
        return "has a body that does not match its checksum"
    return fields, body_at, topic_at, topic_end, topic_end + 2
