"""Bytes for decoders, and the ways in which bytes reach them.

A decoder must not care how its input is cut.  `fed_whole`, `fed_by_byte` and `fed_with_tail` give the same bytes in
three ways and return what came out as plain values, so that a test compares outcomes: lists of requests by their
attributes, or the name of the error.  `fed_with_tail` surrounds the bytes with others that must not be looked at.

Pure and compiled leaves are compared through the same functions: pass the `frames` module to use.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from types import ModuleType

from gantry.errors import RemoteProtocolError
from gantry.leaves import frames as default_frames

COMMAND_FIELDS = ("code", "language", "version", "opaque", "flag", "remark", "ext", "body", "serialization")
SEND_FIELDS = (
    "code",
    "language",
    "version",
    "opaque",
    "rpc_flag",
    "serialization",
    "group",
    "topic",
    "default_topic",
    "default_queues",
    "queue_id",
    "sys_flag",
    "born_ms",
    "flag",
    "properties",
    "reconsume_times",
    "max_reconsume_times",
    "unit_mode",
    "batch",
    "body",
    "traits",
    "unique_key",
    "keys",
    "tags_code",
    "born_host",
    "prepared_offset",
    "queue_offset",
    "log_offset",
    "size",
)
PULL_FIELDS = (
    "code",
    "language",
    "version",
    "opaque",
    "rpc_flag",
    "serialization",
    "group",
    "topic",
    "queue_id",
    "queue_offset",
    "count_max",
    "sys_flag",
    "commit_offset",
    "suspend_ms",
    "subscription",
    "sub_version",
    "expression_type",
    "bytes_max",
)
FIELDS = {"Command": COMMAND_FIELDS, "Send": SEND_FIELDS, "Pull": PULL_FIELDS}
ENTRY_FIELDS = (
    "log_offset",
    "size",
    "topic",
    "queue_id",
    "queue_offset",
    "tags_code",
    "store_ms",
    "sys_flag",
    "prepared_offset",
    "unique_key",
    "keys",
    "properties",
)
RECORD_FIELDS = (
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "log_offset",
    "sys_flag",
    "born_ms",
    "born_host",
    "store_ms",
    "store_host",
    "reconsume_times",
    "prepared_offset",
    "body",
    "topic",
    "properties",
)

BROKEN = "RemoteProtocolError"
Outcome = list[tuple[object, ...]] | str

SEND_EXT = {
    "a": "orders-producer",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "TAGS\x01paid\x02UNIQ_KEY\x01C0A800070A1B2C3D4E5F00000001002A\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
PULL_EXT = {
    "consumerGroup": "orders-consumer",
    "topic": "orders",
    "queueId": "3",
    "queueOffset": "41",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
}


def long_names(ext: Mapping[str, object]) -> dict[str, object]:
    """The fields of a send under the names that code 10 uses."""
    return {LONG_NAMES.get(name, name): value for name, value in ext.items()}


def raw_frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    """A frame around any header bytes."""
    return struct.pack(">iI", 4 + len(header) + len(body), serialization << 24 | len(header)) + header + body


def json_frame(body: bytes = b"", **header: object) -> bytes:
    """A frame with this JSON header."""
    return raw_frame(json.dumps(header).encode(), body)


def send_frame(code: int = 310, body: bytes = b"one espresso", opaque: int = 1, **ext: object) -> bytes:
    """A well-formed send of the example message; keyword arguments change single fields, None takes one away."""
    fields = {name: value for name, value in {**SEND_EXT, **ext}.items() if value is not None}
    return json_frame(body, code=code, opaque=opaque, flag=0, extFields=fields if code != 10 else long_names(fields))


def pull_frame(code: int = 11, opaque: int = 1, **ext: object) -> bytes:
    """A well-formed pull of the example's queue; keyword arguments change single fields, None takes one away."""
    fields = {name: value for name, value in {**PULL_EXT, **ext}.items() if value is not None}
    return json_frame(code=code, opaque=opaque, flag=0, extFields=fields)


def values(request: object) -> tuple[object, ...]:
    """A request as a plain value: its kind and its attributes, in an order of their own."""
    kind = type(request).__name__
    return (kind, *(getattr(request, name) for name in FIELDS[kind]))


def fed_whole(data: bytes, frames: ModuleType = default_frames) -> Outcome:
    """What comes out of all bytes at once."""
    try:
        return [values(request) for request in frames.decode(data, 0, len(data))[1]]
    except RemoteProtocolError:
        return BROKEN


def fed_by_byte(data: bytes, frames: ModuleType = default_frames) -> Outcome:
    """What comes out of one byte at a time, keeping what is unfinished as a connection does."""
    kept = bytearray()
    found: list[tuple[object, ...]] = []
    for number in range(len(data)):
        kept += data[number : number + 1]
        try:
            used, requests = frames.decode(kept, 0, len(kept))
        except RemoteProtocolError:
            return BROKEN
        del kept[:used]
        found += [values(request) for request in requests]
    return found


def fed_with_tail(data: bytes, tail: bytes, frames: ModuleType = default_frames) -> Outcome:
    """What comes out when the bytes lie inside a buffer of others, `tail` on both sides."""
    buffer = bytearray(tail + data + tail)
    try:
        used, requests = frames.decode(memoryview(buffer), len(tail), len(tail) + len(data))
    except RemoteProtocolError:
        return BROKEN
    assert len(tail) <= used <= len(tail) + len(data)
    buffer += b"?"  # raises BufferError when something still refers to the buffer
    return [values(request) for request in requests]
